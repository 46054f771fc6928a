"""BERT, T5 and ViT beside Hugging Face's: equal weights, equal batches; what theirs gives is compared with ours.

`facts_from_huggingface` runs their model and returns what it did as arrays: outputs, losses, every gradient, and the
weights after ten steps of AdamW. `compare` lets ours do the same. So the same facts can be had from a file, where
neither PyTorch nor transformers is installed (tests/fixtures/make_huggingface.py writes it).
Weights go by the names of Hugging Face's checkpoints.
"""

import re

import numpy as np

import transformer_np as tnp

ADAMW = {"lr": 1e-2, "betas": (0.9, 0.98), "eps": 1e-6, "weight_decay": 0.1}
STEPS = 10
SMALL = {"vocab_size": 9, "d_model": 4, "n_heads": 2, "n_layers": 1, "d_ff": 5, "n_sentences": 3, "length": 5}
LARGER = {"vocab_size": 37, "d_model": 12, "n_heads": 3, "n_layers": 2, "d_ff": 20, "n_sentences": 5, "length": 9}
D_HEAD = 3  # T5's, which is not D / H in either size
BUCKETS, FARTHEST = 8, 6
IMAGE, PATCH, CHANNELS, CLASSES = (4, 6), 2, 3, 5
FLOAT64 = {"dropout": 0.0, "dtype": "float64"}


def same(a):
    """Theirs lies as ours does."""
    return a


def transposed(a):
    """A linear map: theirs is (d_out, d_in), ours (d_in, d_out)."""
    return a.T


def linear(name, layer):
    """{their name: (our Parameter, view)} of a linear map, with its bias if it has one."""
    pairs = {f"{name}.weight": (layer.weight, transposed)}
    return pairs if layer.bias is None else {**pairs, f"{name}.bias": (layer.bias, same)}


def norm(name, layer):
    """The same of a layer norm, or of an RMS norm, which has no shift."""
    pairs = {f"{name}.weight": (layer.gamma, same)}
    return {**pairs, f"{name}.bias": (layer.beta, same)} if hasattr(layer, "beta") else pairs


def encoder_layers(prefix, encoder, norm1, norm2):
    """The layers of BERT and ViT, whose norms have names of their own."""
    pairs = {}
    for i, layer in enumerate(encoder.layers):
        at, attention = f"{prefix}.{i}", layer.self_attention
        for theirs, part in (("query", attention.w_q), ("key", attention.w_k), ("value", attention.w_v)):
            attention_name = "attention.self" if prefix.startswith("bert") else "attention.attention"
            pairs |= linear(f"{at}.{attention_name}.{theirs}", part)
        pairs |= linear(f"{at}.attention.output.dense", attention.w_o)
        pairs |= linear(f"{at}.intermediate.dense", layer.feed_forward.linear1)
        pairs |= linear(f"{at}.output.dense", layer.feed_forward.linear2)
        pairs |= norm(f"{at}.{norm1}", layer.norm1) | norm(f"{at}.{norm2}", layer.norm2)
    return pairs


def bert_names(model):
    """{their name: (our Parameter, view)} of a BERT."""
    pairs = {
        "bert.embeddings.word_embeddings.weight": (model.embedding.weight, same),
        "bert.embeddings.position_embeddings.weight": (model.positions.weight, same),
        "bert.embeddings.token_type_embeddings.weight": (model.segment_embedding.weight, same),
        "cls.predictions.bias": (model.word_head.output.bias, same),
    }
    pairs |= norm("bert.embeddings.LayerNorm", model.embedding_norm)
    pairs |= encoder_layers("bert.encoder.layer", model.encoder, "attention.output.LayerNorm", "output.LayerNorm")
    pairs |= linear("bert.pooler.dense", model.pooler.linear)
    pairs |= linear("cls.predictions.transform.dense", model.word_head.linear)
    pairs |= norm("cls.predictions.transform.LayerNorm", model.word_head.norm)
    return pairs | linear("cls.seq_relationship", model.next_head)


def vit_names(model):
    """{their name: (our Parameter, view)} of a ViT."""
    pairs = {
        "vit.embeddings.cls_token": (model.class_token, lambda a: a[0, 0]),
        "vit.embeddings.position_embeddings": (model.positions.weight, lambda a: a[0]),
        "vit.embeddings.patch_embeddings.projection.weight": (
            model.patches.projection.weight,
            lambda a: a.reshape(len(a), -1).T,  # a view of (D, C, P, P)
        ),
        "vit.embeddings.patch_embeddings.projection.bias": (model.patches.projection.bias, same),
    }
    pairs |= encoder_layers("vit.encoder.layer", model.encoder, "layernorm_before", "layernorm_after")
    return pairs | norm("vit.layernorm", model.encoder.final_norm) | linear("classifier", model.head)


def t5_names(model):
    """{their name: (our Parameter, view)} of a T5."""
    pairs = {"shared.weight": (model.src_embedding.weight, same)}
    for stack in ("encoder", "decoder"):
        ours = getattr(model, stack)
        pairs[f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"] = (
            ours.position_bias.weight,
            same,
        )
        pairs |= norm(f"{stack}.final_layer_norm", ours.final_norm)
        for i, layer in enumerate(ours.layers):
            attentions = {"SelfAttention": layer.self_attention}
            if stack == "decoder":
                attentions["EncDecAttention"] = layer.cross_attention
            for j, (name, attention) in enumerate(attentions.items()):
                at = f"{stack}.block.{i}.layer.{j}"
                for part in "qkvo":
                    pairs |= linear(f"{at}.{name}.{part}", getattr(attention, f"w_{part}"))
                pairs |= norm(f"{at}.layer_norm", getattr(layer, f"norm{j + 1}"))
            at, feed_forward, gated = f"{stack}.block.{i}.layer.{j + 1}", layer.feed_forward, model.config["gated"]
            pairs |= linear(f"{at}.DenseReluDense.{'wi_1' if gated else 'wi'}", feed_forward.linear1)
            if gated:
                pairs |= linear(f"{at}.DenseReluDense.wi_0", feed_forward.linear_gate)
            pairs |= linear(f"{at}.DenseReluDense.wo", feed_forward.linear2)
            pairs |= norm(f"{at}.layer_norm", getattr(layer, f"norm{j + 2}"))
    if model.output.weight is not model.src_embedding.weight:
        pairs["lm_head.weight"] = (model.output.weight, same)
    return pairs


def padded_mask(rng, n, length):
    """(n, length): True at real tokens; sentences of 2 tokens up, padded at the end; the second one has a gap too."""
    lengths = rng.integers(2, length + 1, n)
    lengths[0] = length
    mask = np.arange(length) < lengths[:, None]
    mask[1, 1] = False
    return mask


class BertCase:
    """BertForPreTraining: both heads, segments, padding."""

    names = staticmethod(bert_names)

    def ours(self, s):
        sizes = (s["vocab_size"], s["d_model"], s["n_heads"], s["n_layers"], s["d_ff"])
        return tnp.BERT(*sizes, max_len=s["length"] + 1, **FLOAT64)

    def theirs(self, s):
        from transformers import BertConfig, BertForPreTraining

        config = BertConfig(
            vocab_size=s["vocab_size"],
            hidden_size=s["d_model"],
            num_hidden_layers=s["n_layers"],
            num_attention_heads=s["n_heads"],
            intermediate_size=s["d_ff"],
            max_position_embeddings=s["length"] + 1,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
        return BertForPreTraining._from_config(config, attn_implementation="eager")

    def batch(self, rng, s):
        shape = (s["n_sentences"], s["length"])
        ids, mask = rng.integers(1, s["vocab_size"], shape), padded_mask(rng, *shape)
        segments = np.sort(rng.integers(0, 2, shape), axis=1)
        words = np.where(rng.random(shape) < 0.5, ids, -100)
        return ids, segments, mask, words, rng.integers(0, 2, shape[0])

    def run(self, twin, ids, segments, mask, words, is_next):
        output = twin(
            input_ids=ids,
            token_type_ids=segments,
            attention_mask=mask,
            labels=words,
            next_sentence_label=is_next,
        )
        return (output.prediction_logits, output.seq_relationship_logits), output.loss

    def split(self, ids, segments, mask, words, is_next):
        """What goes to forward, and what to the loss."""
        return (ids, segments, mask), (words, is_next)

    loss_fn = tnp.SumOfLosses(tnp.CrossEntropy(ignore_index=-100), tnp.CrossEntropy())


class T5Case:
    """T5ForConditionalGeneration: a padded source, a target whose mask has gaps."""

    names = staticmethod(t5_names)
    loss_fn = tnp.CrossEntropy(ignore_index=-100)

    def __init__(self, version):
        self.version = version

    def ours(self, s):
        version = {"activation": "gelu_tanh", "gated": True, "tie_embeddings": False} if self.version == "1.1" else {}
        sizes = (s["vocab_size"], s["d_model"], s["n_heads"], s["n_layers"], s["n_layers"], s["d_ff"], D_HEAD)
        return tnp.T5(*sizes, n_buckets=BUCKETS, max_distance=FARTHEST, **version, **FLOAT64)

    def theirs(self, s):
        import torch
        from transformers import T5Config, T5ForConditionalGeneration

        config = T5Config(
            vocab_size=s["vocab_size"],
            d_model=s["d_model"],
            d_kv=D_HEAD,
            d_ff=s["d_ff"],
            num_layers=s["n_layers"],
            num_heads=s["n_heads"],
            relative_attention_num_buckets=BUCKETS,
            relative_attention_max_distance=FARTHEST,
            dropout_rate=0.0,
            feed_forward_proj="gated-gelu" if self.version == "1.1" else "relu",
            tie_word_embeddings=self.version == "1.0",
        )
        twin = T5ForConditionalGeneration._from_config(config, attn_implementation="eager")
        if self.version == "1.1":  # transformers 5 ties the two even then, until other weights are loaded
            twin.lm_head.weight = torch.nn.Parameter(twin.shared.weight.detach().clone())
        for module in twin.modules():
            if type(module).__name__ == "T5LayerNorm":
                module.forward = rms_norm_in_float64.__get__(module)
        return twin

    def batch(self, rng, s):
        shape = (s["n_sentences"], s["length"])
        src, src_mask = rng.integers(1, s["vocab_size"], shape), padded_mask(rng, *shape)
        short = (shape[0], shape[1] - 1)
        tgt, tgt_mask = rng.integers(1, s["vocab_size"], short), padded_mask(rng, *short)
        tgt[:, 0] = 0  # T5's start token is its padding
        targets = np.where(tgt_mask, rng.integers(1, s["vocab_size"], short), -100)
        return src, tgt, src_mask, tgt_mask, targets

    def run(self, twin, src, tgt, src_mask, tgt_mask, targets):
        output = twin(
            input_ids=src,
            attention_mask=src_mask,
            decoder_input_ids=tgt,
            decoder_attention_mask=tgt_mask,
            labels=targets,
            use_cache=False,
        )
        return (output.logits,), output.loss

    def split(self, *batch):
        return batch[:-1], batch[-1]


class ViTCase:
    """ViTForImageClassification on images that are not square."""

    names = staticmethod(vit_names)
    loss_fn = tnp.CrossEntropy()

    def ours(self, s):
        sizes = (s["d_model"], s["n_heads"], s["n_layers"], s["d_ff"])
        return tnp.ViT(IMAGE, PATCH, CHANNELS, CLASSES, *sizes, **FLOAT64)

    def theirs(self, s):
        from transformers import ViTConfig, ViTForImageClassification

        config = ViTConfig(
            image_size=IMAGE,
            patch_size=PATCH,
            num_channels=CHANNELS,
            num_labels=CLASSES,
            hidden_size=s["d_model"],
            num_hidden_layers=s["n_layers"],
            num_attention_heads=s["n_heads"],
            intermediate_size=s["d_ff"],
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
        # Its "eager" attention has a softmax in float32.
        return ViTForImageClassification._from_config(config, attn_implementation="sdpa")

    def batch(self, rng, s):
        images = rng.integers(-20, 20, (s["n_sentences"], CHANNELS, *IMAGE)) / 10
        return images, rng.integers(0, CLASSES, s["n_sentences"])

    def run(self, twin, images, targets):
        output = twin(pixel_values=images, labels=targets)
        return (output.logits,), output.loss

    def split(self, images, targets):
        return (images,), targets


CASES = {"bert": BertCase(), "t5_v1_0": T5Case("1.0"), "t5_v1_1": T5Case("1.1"), "vit": ViTCase()}


def rms_norm_in_float64(self, x):
    """T5LayerNorm's formula; its own forward turns x into float32 first, which would leave 7 digits to compare."""
    import torch

    return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)


def checkpoint_name(name):
    """A parameter's name in the checkpoint: transformers 5 renamed ViT's inside, but not in its files."""
    name = re.sub(r"^vit\.layers\.", "vit.encoder.layer.", name)
    if name.startswith("vit."):
        for new, old in {
            "attention.q_proj": "attention.attention.query",
            "attention.k_proj": "attention.attention.key",
            "attention.v_proj": "attention.attention.value",
            "attention.o_proj": "attention.output.dense",
            "mlp.fc1": "intermediate.dense",
            "mlp.fc2": "output.dense",
        }.items():
            name = name.replace(new, old)
    return name


def facts_from_huggingface(case, sizes, seed=0):
    """Train their model for STEPS steps; return {what: array}, the batches included."""
    import torch

    rng = np.random.default_rng(seed)
    twin = case.theirs(sizes).double().train()
    parameters = {checkpoint_name(name): p for name, p in twin.named_parameters()}
    facts = {}
    with torch.no_grad():
        for name, p in parameters.items():
            p += torch.tensor(0.3 * rng.standard_normal(p.shape))  # biases away from 0, scales away from 1
            facts[f"before {name}"] = p.numpy().copy()
    batches = [case.batch(rng, sizes) for _ in range(STEPS)]
    facts |= {f"batch {i}": np.stack(parts) for i, parts in enumerate(zip(*batches, strict=True))}
    optimizer = torch.optim.AdamW(twin.parameters(), **ADAMW)
    losses = []
    for step, batch in enumerate(batches):
        outputs, loss = case.run(twin, *map(torch.tensor, batch))
        optimizer.zero_grad()
        loss.backward()
        if step == 0:
            facts |= {f"output {i}": y.detach().numpy() for i, y in enumerate(outputs)}
            facts |= {f"gradient {name}": p.grad.numpy().copy() for name, p in parameters.items()}
        optimizer.step()
        losses.append(loss.item())
    facts |= {f"after {name}": p.detach().numpy() for name, p in parameters.items()}
    return {**facts, "losses": np.array(losses)}


def relative(a, b):
    """The largest difference over the largest entry."""
    return abs(a - b).max() / abs(b).max()


def compare(case, sizes, facts):
    """Let ours do what the facts say theirs did; return the largest relative error of each kind."""
    model = case.ours(sizes)
    names = case.names(model)
    assert {f"before {name}" for name in names} == {what for what in facts if what.startswith("before ")}
    assert {id(p) for p, _ in names.values()} == {id(p) for p in model.parameters()}
    for name, (p, view) in names.items():
        p.data[...] = view(facts[f"before {name}"])
    batches = list(zip(*(facts[f"batch {i}"] for i in range(sum(w.startswith("batch ") for w in facts))), strict=True))
    optimizer = tnp.AdamW(model.parameters(), **ADAMW)
    step = tnp.TrainStep(model, case.loss_fn, optimizer)  # the same lines for every model
    errors = {"output": 0.0, "loss": 0.0, "gradient": 0.0, "after": 0.0}
    for i, batch in enumerate(batches):
        inputs, targets = case.split(*batch)
        if i == 0:
            outputs = model.forward(*inputs)
            outputs = outputs if isinstance(outputs, tuple) else (outputs,)
            errors["output"] = max(relative(y, facts[f"output {j}"]) for j, y in enumerate(outputs))
        loss = step(*inputs, targets)
        if i == 0:
            errors["gradient"] = max(gradient_errors(names, facts).values())
        errors["loss"] = max(errors["loss"], abs(loss - facts["losses"][i]) / facts["losses"][i])
    errors["after"] = max(relative(p.data, view(facts[f"after {name}"])) for name, (p, view) in names.items())
    return errors


def gradient_errors(names, facts):
    """{name: relative error}. The gradient of a key's bias is 0, so that one is measured by the largest of all."""
    largest = max(abs(p.grad).max() for p, _ in names.values())
    errors = {}
    for name, (p, view) in names.items():
        theirs = view(facts[f"gradient {name}"])
        truly_zero = name.endswith("key.bias")
        assert truly_zero or abs(theirs).max() > 1e-5 * largest, f"{name}: so small a gradient would prove nothing"
        errors[name] = abs(p.grad - theirs).max() / (largest if truly_zero else abs(theirs).max())
    return errors
