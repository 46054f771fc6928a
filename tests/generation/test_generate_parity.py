"""Greedy and beam search against Hugging Face's `generate`, token for token, on the same random models."""

import numpy as np
import pytest

import transformer_np as tnp

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from decoder_only_twins import V, gpt_twins, llama_twins  # noqa: E402

PAD, BOS, EOS = 0, 1, 2
D, H, N, F = 24, 4, 2, 40

pytestmark = [
    pytest.mark.usefixtures("one_torch_thread"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


def translator_twins(seed=3):
    """The Transformer and Marian, which is the paper's: post-norm, sines and cosines, scaled embeddings."""
    config = transformers.MarianConfig(
        vocab_size=V,
        decoder_vocab_size=V,
        d_model=D,
        encoder_layers=N,
        decoder_layers=N,
        encoder_attention_heads=H,
        decoder_attention_heads=H,
        encoder_ffn_dim=F,
        decoder_ffn_dim=F,
        max_position_embeddings=40,
        activation_function="relu",
        scale_embedding=True,
        share_encoder_decoder_embeddings=False,
        tie_word_embeddings=False,
        dropout=0.0,
        pad_token_id=PAD,
        decoder_start_token_id=BOS,
        eos_token_id=EOS,
        forced_eos_token_id=None,
    )
    theirs = transformers.MarianMTModel(config).double().eval()
    ours = tnp.Transformer(V, V, D, H, N, N, F, 0.0, 40, dtype="float64", seed=seed)
    rng = np.random.default_rng(seed)
    for p in ours.parameters():
        p.data += 0.2 * rng.standard_normal(p.shape)
    ours.output.bias.data[EOS] += 1.5  # so that texts end, at different lengths
    table = torch.tensor(tnp.layers.positions.sinusoids(40, D))  # theirs begins with all the sines, ours alternates
    with torch.no_grad():
        for stack, their_stack in ((ours.encoder, theirs.model.encoder), (ours.decoder, theirs.model.decoder)):
            their_stack.embed_positions.weight.copy_(table)
            for mine, layer in zip(stack.layers, their_stack.layers, strict=True):
                copy_layer(mine, layer)
        theirs.model.encoder.embed_tokens.weight.copy_(torch.tensor(ours.src_embedding.weight.data))
        theirs.model.decoder.embed_tokens.weight.copy_(torch.tensor(ours.tgt_embedding.weight.data))
        theirs.lm_head.weight.copy_(torch.tensor(ours.output.weight.data))
        theirs.final_logits_bias.copy_(torch.tensor(ours.output.bias.data[None]))
    return ours, theirs


def copy_layer(mine, layer):
    """Copy our encoder's or decoder's layer into theirs."""
    pairs = [(mine.feed_forward.linear1, layer.fc1), (mine.feed_forward.linear2, layer.fc2)]
    attentions, norms = [(mine.self_attention, layer.self_attn)], [(mine.norm1, layer.self_attn_layer_norm)]
    if hasattr(mine, "cross_attention"):
        attentions.append((mine.cross_attention, layer.encoder_attn))
        norms += [(mine.norm2, layer.encoder_attn_layer_norm), (mine.norm3, layer.final_layer_norm)]
    else:
        norms.append((mine.norm2, layer.final_layer_norm))
    for a, b in attentions:
        pairs += [(a.w_q, b.q_proj), (a.w_k, b.k_proj), (a.w_v, b.v_proj), (a.w_o, b.out_proj)]
    for a, b in pairs:
        b.weight.copy_(torch.tensor(a.weight.data.T))
        b.bias.copy_(torch.tensor(a.bias.data))
    for a, b in norms:
        b.weight.copy_(torch.tensor(a.gamma.data))
        b.bias.copy_(torch.tensor(a.beta.data))


def theirs_writes(theirs, source, mask, max_len, **options):
    """Their `generate`: the new ids, filled up with padding, and the scores of a beam search."""
    out = theirs.generate(
        torch.tensor(source),
        attention_mask=torch.tensor(mask).long(),
        max_new_tokens=max_len,
        do_sample=False,
        pad_token_id=PAD,
        return_dict_in_generate=True,
        output_scores=True,
        **options,
    )
    start = 1 if theirs.config.is_encoder_decoder else source.shape[1]
    scores = getattr(out, "sequences_scores", None)
    return out.sequences[:, start:].numpy(), None if scores is None else scores.numpy()


def assert_same_texts(got, expected, end=EOS):
    """The same tokens up to the end; what they are filled up with is another matter (theirs takes no 0 for that)."""

    def texts(rows):
        return [row[: row.index(end) + 1] if end in row else row for row in rows.tolist()]

    assert texts(got) == texts(expected)
    assert got.shape[1] == max(map(len, texts(got)))


def padded_prompts(length, seed=4):
    """Six prompts of different lengths, padded on the left as `generate` needs it."""
    ids = np.random.default_rng(seed).integers(3, V, (6, length))
    mask = np.arange(length) >= np.array([0, length - 1, 2, length // 2, 1, 0])[:, None]
    return np.where(mask, ids, PAD), mask


TWINS = {"GPT": gpt_twins, "Llama": llama_twins}


@pytest.mark.parametrize(("length", "max_len"), [(5, 1), (5, 12), (11, 20)])
@pytest.mark.parametrize("name", TWINS)
def test_greedy_decoder_only(name, length, max_len):
    ours, theirs, _ = TWINS[name]()
    prompts, mask = padded_prompts(length)
    free = tnp.greedy(ours, prompts, max_len, mask=mask)
    np.testing.assert_array_equal(free, theirs_writes(theirs, prompts, mask, max_len)[0])
    end = int(free[3, max_len // 2])  # a token that one text reaches
    ours.pad_id = PAD
    got = tnp.greedy(ours, prompts, max_len, eos_id=end, mask=mask, forbid=())
    assert_same_texts(got, theirs_writes(theirs, prompts, mask, max_len, eos_token_id=end)[0], end)


@pytest.mark.parametrize("penalty", [1.3, 0.8])
@pytest.mark.parametrize("name", TWINS)
def test_greedy_with_a_repetition_penalty(name, penalty):
    ours, theirs, _ = TWINS[name]()
    prompts = np.random.default_rng(5).integers(3, V, (4, 6))
    got = tnp.sample(ours, prompts, temperature=0, repetition_penalty=penalty, max_len=15)
    expected = theirs_writes(theirs, prompts, prompts > 0, 15, repetition_penalty=penalty)[0]
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("early_stopping", [False, True])
@pytest.mark.parametrize(("beam_size", "alpha", "length"), [(2, 1.0, 4), (4, 0.0, 7), (5, 2.0, 7), (3, -1.0, 4)])
@pytest.mark.parametrize("name", TWINS)
def test_beam_search_decoder_only(name, beam_size, alpha, length, early_stopping):
    ours, theirs, _ = TWINS[name]()
    prompts, mask = padded_prompts(length)
    options = {"num_beams": beam_size, "length_penalty": alpha, "eos_token_id": EOS}
    options["early_stopping"] = early_stopping or "never"
    expected, scores = theirs_writes(theirs, prompts, mask, 9, **options)
    options = {"length_rule": "power", "early_stopping": early_stopping, "return_scores": True, "forbid": ()}
    ours.pad_id = PAD
    got, our_scores = tnp.beam_search(ours, prompts, beam_size, alpha, 9, eos_id=EOS, mask=mask, **options)
    assert_same_texts(got, expected)
    np.testing.assert_allclose(our_scores, scores, rtol=1e-5)  # theirs are sums of float32


@pytest.mark.parametrize("beam_size", [1, 2, 5])
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0, 3.0])
@pytest.mark.parametrize("early_stopping", [False, True])
def test_translating(beam_size, alpha, early_stopping):
    ours, theirs = translator_twins()
    rng = np.random.default_rng(6)
    src = rng.integers(3, V, (8, 9))
    mask = np.arange(9) < rng.integers(1, 10, 8)[:, None]
    src = np.where(mask, src, PAD)
    if beam_size == 1:
        expected, _ = theirs_writes(theirs, src, mask, 14, num_beams=1)
        assert_same_texts(tnp.greedy(ours, src, 14, BOS, EOS, forbid=()), expected)
        return
    options = {"num_beams": beam_size, "length_penalty": alpha, "early_stopping": early_stopping or "never"}
    expected, scores = theirs_writes(theirs, src, mask, 14, **options)
    got, our_scores = tnp.beam_search(
        ours,
        src,
        beam_size,
        alpha,
        14,
        length_rule="power",
        early_stopping=early_stopping,
        return_scores=True,
        forbid=(),
    )
    assert_same_texts(got, expected)
    np.testing.assert_allclose(our_scores, scores, rtol=1e-5)
