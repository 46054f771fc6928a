"""The Transformer against torch.nn.Transformer in float64, with the same weights: outputs, gradients, training."""

import numpy as np
import pytest

from transformer_np import Adam, CrossEntropy, NoamSchedule, Transformer

torch = pytest.importorskip("torch")

V_SRC, V_TGT, D, H, F, LAYERS, PAD = 13, 17, 12, 3, 20, 2, 0
CONFIGURATIONS = [  # norm, final_norm, tie_embeddings; torch.nn.Transformer itself always has the final norms
    ("post", None, False),
    ("post", True, "target"),
    ("pre", None, True),
    ("pre", False, False),
]

pytestmark = [
    pytest.mark.usefixtures("one_torch_thread"),
    pytest.mark.filterwarnings(  # torch.nn.Transformer itself asks for the nested tensors that it then cannot use
        "ignore:enable_nested_tensor is True, but self.use_nested_tensor is False:UserWarning"
    ),
]


class Twin(torch.nn.Module):
    """torch.nn.Transformer between the paper's embeddings, positions and output projection."""

    def __init__(self, v_src, norm, final_norm, tie):
        super().__init__()
        self.src_embedding = torch.nn.Embedding(v_src, D)
        self.tgt_embedding = self.src_embedding if tie is True else torch.nn.Embedding(V_TGT, D)
        self.transformer = torch.nn.Transformer(
            D, H, LAYERS, LAYERS, F, dropout=0.0, batch_first=True, norm_first=norm == "pre"
        )
        if not (norm == "pre" if final_norm is None else final_norm):
            self.transformer.encoder.norm = self.transformer.decoder.norm = None
        self.output = torch.nn.Linear(D, V_TGT)
        if tie:
            self.output.weight = self.tgt_embedding.weight
        self.double()

    def forward(self, src, tgt):
        causal = torch.triu(torch.ones(tgt.shape[1], tgt.shape[1], dtype=torch.bool), 1)  # True = may not attend
        return self.output(
            self.transformer(
                self.src_embedding(src) * D**0.5 + positions(src.shape[1]),
                self.tgt_embedding(tgt) * D**0.5 + positions(tgt.shape[1]),
                tgt_mask=causal,
                src_key_padding_mask=src == PAD,
                tgt_key_padding_mask=tgt == PAD,
                memory_key_padding_mask=src == PAD,
            )
        )


def positions(length):
    """The sines and cosines of section 3.5, entry by entry."""
    table = [[(np.sin, np.cos)[j % 2](pos / 10000 ** ((j - j % 2) / D)) for j in range(D)] for pos in range(length)]
    return torch.tensor(np.array(table))


def matched(ours, twin):
    """Yield (name, our Parameter, torch's parameter, view): `view` of torch's array lies as ours does."""

    def linear(name, mine, weight, bias, rows=slice(None)):
        yield f"{name}.weight", mine.weight, weight, lambda a: a[rows].T
        yield f"{name}.bias", mine.bias, bias, lambda a: a[rows]

    def attention(name, mine, theirs):
        for i, part in enumerate(("w_q", "w_k", "w_v")):
            rows = slice(i * D, (i + 1) * D)  # torch stacks the three matrices
            yield from linear(f"{name}.{part}", getattr(mine, part), theirs.in_proj_weight, theirs.in_proj_bias, rows)
        yield from linear(f"{name}.w_o", mine.w_o, theirs.out_proj.weight, theirs.out_proj.bias)

    def norm(name, mine, theirs):
        yield f"{name}.gamma", mine.gamma, theirs.weight, lambda a: a
        yield f"{name}.beta", mine.beta, theirs.bias, lambda a: a

    def layer(name, mine, theirs, attentions, n_norms):
        for my_name, their_name in attentions.items():
            yield from attention(f"{name}.{my_name}", getattr(mine, my_name), getattr(theirs, their_name))
        for i in range(1, n_norms + 1):
            yield from norm(f"{name}.norm{i}", getattr(mine, f"norm{i}"), getattr(theirs, f"norm{i}"))
        for part in ("linear1", "linear2"):
            feed_forward = getattr(theirs, part)
            yield from linear(
                f"{name}.{part}", getattr(mine.feed_forward, part), feed_forward.weight, feed_forward.bias
            )

    yield "src_embedding", ours.src_embedding.weight, twin.src_embedding.weight, lambda a: a
    yield "tgt_embedding", ours.tgt_embedding.weight, twin.tgt_embedding.weight, lambda a: a
    yield "output.weight", ours.output.weight, twin.output.weight, lambda a: a
    yield "output.bias", ours.output.bias, twin.output.bias, lambda a: a
    stacks = {
        "encoder": ({"self_attention": "self_attn"}, 2),
        "decoder": ({"self_attention": "self_attn", "cross_attention": "multihead_attn"}, 3),
    }
    for stack, (attentions, n_norms) in stacks.items():
        mine, theirs = getattr(ours, stack), getattr(twin.transformer, stack)
        for i, (my_layer, their_layer) in enumerate(zip(mine.layers, theirs.layers, strict=True)):
            yield from layer(f"{stack}.{i}", my_layer, their_layer, attentions, n_norms)
        if mine.final_norm is not None:
            yield from norm(f"{stack}.final_norm", mine.final_norm, theirs.norm)


def twins(norm, final_norm, tie, seed=0):
    """Our Transformer with random parameters throughout, and torch's with the same ones."""
    v_src = V_TGT if tie is True else V_SRC
    ours = Transformer(
        v_src, V_TGT, D, H, LAYERS, LAYERS, F, 0.0, 20, norm, "sinusoidal", tie, dtype="float64", final_norm=final_norm
    )
    rng = np.random.default_rng(seed)
    for p in ours.parameters():
        p.data += 0.2 * rng.standard_normal(p.shape)
    twin = Twin(v_src, norm, final_norm, tie)
    pairs = list(matched(ours, twin))
    assert {id(p) for _, p, _, _ in pairs} == {id(p) for p in ours.parameters()}
    assert {id(t) for _, _, t, _ in pairs} == {id(t) for t in twin.parameters()}
    for _, p, t, view in pairs:
        view(t.detach().numpy())[...] = p.data
    return ours, twin, pairs


def batch(rng, n=5, longest_src=9, longest_tgt=7):
    """Random sentences of 1 token up, padded at the end: src, the decoder's input, and what it should say."""

    def padded(vocab_size, longest):
        ids = rng.integers(3, vocab_size, (n, longest))
        lengths = rng.integers(1, longest + 1, n)
        lengths[0] = longest
        return np.where(np.arange(longest) < lengths[:, None], ids, PAD)

    src, tgt = padded(V_SRC, longest_src), padded(V_TGT, longest_tgt + 1)
    return src, np.where(tgt[:, 1:] == PAD, PAD, tgt[:, :-1]), tgt[:, 1:]


def relative(a, b):
    """The largest difference over the largest entry."""
    return abs(a - b).max() / abs(b).max()


@pytest.mark.parametrize(("norm", "final_norm", "tie"), CONFIGURATIONS)
def test_outputs_and_every_gradient(norm, final_norm, tie):
    ours, twin, pairs = twins(norm, final_norm, tie)
    rng = np.random.default_rng(1)
    src, tgt, _ = batch(rng)
    tgt[:, 0] = 1  # every sentence starts: torch would give NaN where a query may look nowhere
    logits = ours.forward(src, tgt)
    torch_logits = twin(torch.tensor(src), torch.tensor(tgt))
    assert relative(logits, torch_logits.detach().numpy()) < 1e-13
    dlogits = rng.standard_normal(logits.shape)
    ours.backward(dlogits)
    torch_logits.backward(torch.tensor(dlogits))
    largest = max(abs(p.grad).max() for _, p, _, _ in pairs)
    errors = {}
    for name, p, t, view in pairs:
        theirs = view(t.grad.numpy())
        if name.endswith("w_k.bias"):  # truly zero: the same number added to all scores of a row changes nothing
            assert max(abs(p.grad).max(), abs(theirs).max()) < 1e-13 * largest
        else:
            errors[name] = relative(p.grad, theirs)
    assert max(errors.values()) < 1e-12, errors


@pytest.mark.parametrize(("norm", "final_norm", "tie"), CONFIGURATIONS)
def test_fifty_steps_of_adam_with_warm_up(norm, final_norm, tie):
    ours, twin, pairs = twins(norm, final_norm, tie)
    warmup = 20
    loss_fn = CrossEntropy(label_smoothing=0.1, ignore_index=PAD)
    torch_loss_fn = torch.nn.CrossEntropyLoss(label_smoothing=0.1, ignore_index=PAD)
    optimizer = Adam(ours.parameters(), lr=NoamSchedule(D, warmup), betas=(0.9, 0.98), eps=1e-9)
    torch_optimizer = torch.optim.Adam(twin.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9)
    rng = np.random.default_rng(2)
    losses = []
    for step in range(1, 51):
        src, tgt, targets = batch(rng)
        tgt[:, 0] = 1
        optimizer.zero_grad()
        loss = loss_fn.forward(ours.forward(src, tgt), targets)
        ours.backward(loss_fn.backward())
        optimizer.step()

        torch_optimizer.param_groups[0]["lr"] = D**-0.5 * min(step**-0.5, step * warmup**-1.5)
        torch_optimizer.zero_grad()
        logits = twin(torch.tensor(src), torch.tensor(tgt))
        torch_loss = torch_loss_fn(logits.reshape(-1, V_TGT), torch.tensor(targets).reshape(-1))
        torch_loss.backward()
        torch_optimizer.step()

        losses.append(loss)
        assert abs(loss - torch_loss.item()) < 1e-9 * loss, f"step {step}"
    assert np.mean(losses[-10:]) < np.mean(losses[:10])  # something was learned: the steps were no small ones
    for name, p, t, view in pairs:
        error = relative(p.data, view(t.detach().numpy()))
        # The gradient of a key's bias is truly 0, and Adam divides its rounding noise of about 1e-17 by eps = 1e-9.
        # So no two programs agree on it to more than about 1e-8 a step; nothing else depends on it.
        assert error < (1e-6 if name.endswith("w_k.bias") else 1e-9), f"{name}: {error:.1e}"
