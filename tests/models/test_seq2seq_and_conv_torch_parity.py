"""Seq2SeqRNN and ConvEncoder against PyTorch in float64, with the same weights: outputs, gradients, ten AdamW steps."""

import numpy as np
import pytest

import transformer_np as tnp

torch = pytest.importorskip("torch")

V_SRC, V_TGT, D, LAYERS = 13, 17, 10, 2
ADAMW = {"lr": 1e-2, "betas": (0.9, 0.98), "eps": 1e-6, "weight_decay": 0.1}
FLOAT64 = {"dropout": 0.0, "dtype": "float64"}

pytestmark = pytest.mark.usefixtures("one_torch_thread")


class RecurrentTwin(torch.nn.Module):
    """torch.nn.LSTM or GRU on packed sentences, and Bahdanau's scores written out entry by entry."""

    def __init__(self, cell, attention, bidirectional):
        super().__init__()
        kind = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[cell]
        width = D // 2 if bidirectional else D
        self.src_embedding = torch.nn.Embedding(V_SRC, D)
        self.tgt_embedding = torch.nn.Embedding(V_TGT, D)
        self.encoder = kind(D, width, LAYERS, batch_first=True, bidirectional=bidirectional)
        self.decoder = kind(D, D, LAYERS, batch_first=True)
        if attention:
            self.w_q = torch.nn.Linear(D, D, bias=False)
            self.w_k = torch.nn.Linear(D, D, bias=False)
            self.v = torch.nn.Parameter(torch.zeros(D))
            self.combine = torch.nn.Linear(2 * D, D)
        self.attention = attention
        self.output = torch.nn.Linear(D, V_TGT)
        self.double()

    def forward(self, src, tgt):
        real = src != 0
        packed = torch.nn.utils.rnn.pack_padded_sequence(
            self.src_embedding(src) * D**0.5, real.sum(1), batch_first=True, enforce_sorted=False
        )
        vectors, states = self.encoder(packed)
        vectors, _ = torch.nn.utils.rnn.pad_packed_sequence(vectors, batch_first=True, total_length=src.shape[1])

        def both_directions(state):  # (LAYERS * directions, B, width) -> (LAYERS, B, D)
            return torch.stack([torch.cat(list(s), -1) for s in state.unflatten(0, (LAYERS, -1))])

        states = tuple(map(both_directions, states)) if isinstance(states, tuple) else both_directions(states)
        x, _ = self.decoder(self.tgt_embedding(tgt) * D**0.5, states)
        if self.attention:
            scores = torch.tanh(self.w_q(x)[:, :, None] + self.w_k(vectors)[:, None]) @ self.v
            weights = scores.masked_fill(~real[:, None], float("-inf")).softmax(-1)
            x = torch.tanh(self.combine(torch.cat([x, weights @ vectors], -1)))
        return self.output(x)


class ConvTwin(torch.nn.Module):
    """torch.nn.Conv1d and glu, with the padding set to zero before every convolution."""

    def __init__(self, kernel_size, padding):
        super().__init__()
        self.embedding = torch.nn.Embedding(V_SRC, D)
        self.positions = torch.nn.Embedding(12, D)
        self.convs = torch.nn.ModuleList([torch.nn.Conv1d(D, 2 * D, kernel_size) for _ in range(LAYERS)])
        self.output = torch.nn.Linear(D, V_TGT)
        reach = kernel_size - 1
        self.sides = (reach // 2, reach - reach // 2) if padding == "same" else (reach, 0)
        self.double()

    def forward(self, ids):
        x = self.embedding(ids) * D**0.5 + self.positions.weight[: ids.shape[1]]
        for conv in self.convs:
            padded = torch.nn.functional.pad((x * (ids != 0)[..., None]).mT, self.sides)
            x = (x + torch.nn.functional.glu(conv(padded), 1).mT) * 0.5**0.5
        return self.output(x)


def same(a):
    """Theirs lies as ours does."""
    return a


def transposed(a):
    """The axes the other way round."""
    return a.T


def recurrent_pairs(ours, theirs):
    """(our Parameter, torch's, view) of a stack: torch numbers the layers and marks the reverse ones."""
    for i, layer in enumerate(ours.layers):
        for direction, suffix in zip(layer, ("", "_reverse"), strict=False):
            for part in ("ih", "hh"):
                yield getattr(direction, f"weight_{part}"), getattr(theirs, f"weight_{part}_l{i}{suffix}"), transposed
                yield getattr(direction, f"bias_{part}"), getattr(theirs, f"bias_{part}_l{i}{suffix}"), same


def pairs_of(model, twin):
    """(our Parameter, torch's, view) of the whole model."""
    pairs = [(model.output.weight, twin.output.weight, same), (model.output.bias, twin.output.bias, same)]
    if isinstance(twin, ConvTwin):
        pairs += [(model.embedding.weight, twin.embedding.weight, same)]
        pairs += [(model.positions.weight, twin.positions.weight, same)]
        for block, conv in zip(model.blocks, twin.convs, strict=True):
            pairs += [(block.conv.weight, conv.weight, transposed), (block.conv.bias, conv.bias, same)]
        return pairs
    pairs += [(getattr(model, n).weight, getattr(twin, n).weight, same) for n in ("src_embedding", "tgt_embedding")]
    pairs += [*recurrent_pairs(model.encoder, twin.encoder), *recurrent_pairs(model.decoder, twin.decoder)]
    if model.attention is not None:
        pairs += [(getattr(model.attention, n).weight, getattr(twin, n).weight, transposed) for n in ("w_q", "w_k")]
        pairs += [(model.attention.v, twin.v, same), (model.combine.weight, twin.combine.weight, transposed)]
        pairs += [(model.combine.bias, twin.combine.bias, same)]
    return pairs


def sentences(rng, vocab_size, length, n=5):
    """(n, length): random ids, padded at the end; the first one has full length."""
    lengths = rng.integers(1, length + 1, n)
    lengths[0] = length
    return np.where(np.arange(length) < lengths[:, None], rng.integers(1, vocab_size, (n, length)), 0)


def relative(a, b):
    """The largest difference over the largest entry."""
    return abs(a - b).max() / abs(b).max()


def assert_twins(model, twin, batch):
    """Outputs to 1e-10, every gradient to 1e-9 at the first step, losses to 1e-10, the weights after ten to 1e-8."""
    rng = np.random.default_rng(3)
    pairs = pairs_of(model, twin)
    assert {id(p) for p, _, _ in pairs} == {id(p) for p in model.parameters()}
    assert {id(t) for _, t, _ in pairs} == {id(t) for t in twin.parameters()}
    for p, t, view in pairs:
        p.data += 0.2 * rng.standard_normal(p.shape)
        view(t.detach().numpy())[...] = p.data
    step = tnp.TrainStep(model, tnp.CrossEntropy(ignore_index=0), tnp.AdamW(model.parameters(), **ADAMW))
    optimizer = torch.optim.AdamW(twin.parameters(), **ADAMW)
    losses = []
    for i in range(10):
        *inputs, targets = batch(rng)
        logits = twin(*map(torch.tensor, inputs))
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), torch.tensor(targets).flatten(), ignore_index=0)
        optimizer.zero_grad()
        loss.backward()
        if i == 0:
            ours, theirs = model.forward(*inputs), logits.detach().numpy()
            assert relative(ours[targets != 0], theirs[targets != 0]) < 1e-10  # at padding torch goes on counting
        losses.append(step(*inputs, targets))
        if i == 0:
            assert max(relative(p.grad, view(t.grad.numpy())) for p, t, view in pairs) < 1e-9
        optimizer.step()
        assert abs(losses[-1] - loss.item()) < 1e-10 * losses[-1]
    assert max(relative(p.data, view(t.detach().numpy())) for p, t, view in pairs) < 1e-8


@pytest.mark.parametrize("attention", [True, False])
@pytest.mark.parametrize(("cell", "bidirectional"), [("lstm", False), ("lstm", True), ("gru", False), ("gru", True)])
def test_seq2seq_rnn(cell, bidirectional, attention):
    def batch(rng):
        tgt = sentences(rng, V_TGT, 7)
        return sentences(rng, V_SRC, 9), np.where(tgt[:, 1:] == 0, 0, tgt[:, :-1]), tgt[:, 1:]

    model = tnp.Seq2SeqRNN(V_SRC, V_TGT, D, LAYERS, cell, attention, bidirectional, **FLOAT64)
    assert_twins(model, RecurrentTwin(cell, attention, bidirectional), batch)


@pytest.mark.parametrize(("kernel_size", "padding"), [(3, "same"), (2, "same"), (3, "causal")])
def test_conv_encoder(kernel_size, padding):
    def batch(rng):
        ids = sentences(rng, V_SRC, 9)
        return ids, np.where(ids == 0, 0, ids + 2)

    model = tnp.ConvEncoder(V_SRC, V_TGT, D, LAYERS, kernel_size, padding, max_len=12, **FLOAT64)
    assert_twins(model, ConvTwin(kernel_size, padding), batch)
