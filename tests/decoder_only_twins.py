"""Hugging Face's GPT-2 and Llama in float64 with random weights, and ours with the same ones.

The names and layouts are mapped here by hand, apart from `interop.huggingface`, so that one is a check of the other.
"""

import numpy as np
import torch
import transformers
from transformers.models.llama import modeling_llama

import transformer_np as tnp

V, D, H, N, MAX_LEN = 29, 24, 4, 2, 40


def in_float64(model):
    """Hugging Face computes Llama's norms and rotary angles in float32, whatever the model is; here in float64."""

    def norm(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon))

    def angles(self, x, position_ids):
        n = torch.arange(0, self.config.head_dim, 2, dtype=torch.float64)
        frequency = self.config.rope_parameters["rope_theta"] ** (-n / self.config.head_dim)
        a = position_ids[..., None].double() * frequency
        a = torch.cat([a, a], -1)
        return a.cos(), a.sin()

    for module in model.modules():
        if isinstance(module, modeling_llama.LlamaRMSNorm):
            module.forward = norm.__get__(module)
        if isinstance(module, modeling_llama.LlamaRotaryEmbedding):
            module.forward = angles.__get__(module)
    return model.double().eval()


def gpt_twins(seed=0, tie=True, dtype="float64", **options):
    """Return (ours, theirs, pairs), pairs being (name, our Parameter, theirs, view): `view` lets theirs lie as ours."""
    sizes = {"vocab_size": V, "d_model": D, "n_heads": H, "n_layers": N, "max_len": MAX_LEN, "dropout": 0.0, **options}
    config = transformers.GPT2Config(
        vocab_size=sizes["vocab_size"],
        n_embd=sizes["d_model"],
        n_head=sizes["n_heads"],
        n_layer=sizes["n_layers"],
        n_positions=sizes["max_len"],
        n_inner=sizes.get("d_ff"),
        tie_word_embeddings=tie,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=None,
        eos_token_id=None,
    )
    theirs = transformers.GPT2LMHeadModel(config).eval()
    theirs = theirs.double() if dtype == "float64" else theirs
    ours = tnp.GPT(**sizes, tie_embeddings=tie, dtype=dtype, seed=seed)
    return ours, theirs, matched(ours, theirs, list(gpt_names(ours, theirs)), seed)


def gpt_names(ours, theirs):
    """Yield (our Parameter, theirs, view). GPT-2's matrices lie as ours do; Q, K and V are side by side in one."""
    yield ours.embedding.weight, theirs.transformer.wte.weight, same
    yield ours.positions.weight, theirs.transformer.wpe.weight, same
    for mine, layer in zip(ours.layers, theirs.transformer.h, strict=True):
        for norm, their_norm in ((mine.norm1, layer.ln_1), (mine.norm2, layer.ln_2)):
            yield norm.gamma, their_norm.weight, same
            yield norm.beta, their_norm.bias, same
        d = mine.d_model
        for i, part in enumerate((mine.self_attention.w_q, mine.self_attention.w_k, mine.self_attention.w_v)):
            columns = slice(i * d, (i + 1) * d)
            yield part.weight, layer.attn.c_attn.weight, lambda a, columns=columns: a[:, columns]
            yield part.bias, layer.attn.c_attn.bias, lambda a, columns=columns: a[columns]
        for linear, theirs_linear in (
            (mine.self_attention.w_o, layer.attn.c_proj),
            (mine.feed_forward.linear1, layer.mlp.c_fc),
            (mine.feed_forward.linear2, layer.mlp.c_proj),
        ):
            yield linear.weight, theirs_linear.weight, same
            yield linear.bias, theirs_linear.bias, same
    yield ours.final_norm.gamma, theirs.transformer.ln_f.weight, same
    yield ours.final_norm.beta, theirs.transformer.ln_f.bias, same
    yield ours.output.weight, theirs.lm_head.weight, same


def llama_twins(seed=0, tie=False, n_kv_heads=2, **options):
    """The same for Llama, with grouped queries."""
    sizes = {"vocab_size": V, "d_model": D, "n_heads": H, "n_layers": N, "d_ff": 40, **options}
    config = transformers.LlamaConfig(
        vocab_size=sizes["vocab_size"],
        hidden_size=sizes["d_model"],
        intermediate_size=sizes["d_ff"],
        num_hidden_layers=sizes["n_layers"],
        num_attention_heads=sizes["n_heads"],
        num_key_value_heads=n_kv_heads,
        max_position_embeddings=512,
        rms_norm_eps=1e-6,
        tie_word_embeddings=tie,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0},
        bos_token_id=None,
        eos_token_id=None,
    )
    theirs = in_float64(transformers.LlamaForCausalLM(config))
    ours = tnp.Llama(**sizes, n_kv_heads=n_kv_heads, tie_embeddings=tie, rotary_base=500.0, dtype="float64", seed=seed)
    return ours, theirs, matched(ours, theirs, list(llama_names(ours, theirs)), seed)


def llama_names(ours, theirs):
    """Yield (our Parameter, theirs, view). Llama's matrices are transposed."""
    yield ours.embedding.weight, theirs.model.embed_tokens.weight, same
    for mine, layer in zip(ours.layers, theirs.model.layers, strict=True):
        yield mine.norm1.gamma, layer.input_layernorm.weight, same
        yield mine.norm2.gamma, layer.post_attention_layernorm.weight, same
        for x in "qkvo":
            linear = getattr(layer.self_attn, f"{x}_proj")
            yield getattr(mine.self_attention, f"w_{x}").weight, linear.weight, transposed
        yield mine.feed_forward.linear_gate.weight, layer.mlp.gate_proj.weight, transposed
        yield mine.feed_forward.linear1.weight, layer.mlp.up_proj.weight, transposed
        yield mine.feed_forward.linear2.weight, layer.mlp.down_proj.weight, transposed
    yield ours.final_norm.gamma, theirs.model.norm.weight, same
    yield ours.output.weight, theirs.lm_head.weight, same


def same(a):
    return a


def transposed(a):
    return a.T


def matched(ours, theirs, pairs, seed):
    """Give both the same random weights, everywhere different from their first values; return the pairs with names."""
    names = {id(p): name for name, p in ours.named_parameters()}
    assert {id(p) for p, _, _ in pairs} == set(names)
    assert {id(t) for _, t, _ in pairs} == {id(t) for t in theirs.parameters()}
    rng = np.random.default_rng(seed)
    for p in ours.parameters():
        p.data += 0.2 * rng.standard_normal(p.shape).astype(p.data.dtype)
    for p, t, view in pairs:
        view(t.detach().numpy())[...] = p.data
    return [(names[id(p)], p, t, view) for p, t, view in pairs]
