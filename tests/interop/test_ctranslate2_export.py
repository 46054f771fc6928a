"""Our Transformer as CTranslate2's files: CTranslate2 gives every token of a target the same probability."""

import numpy as np
import pytest

import transformer_np as tnp
from transformer_np.interop import ctranslate2

TOKENS = ["<pad>", "<bos>", "<eos>", "<unk>", *"abcdefg"]
SMALL = {"d_model": 8, "n_heads": 2, "n_encoder_layers": 2, "n_decoder_layers": 1, "d_ff": 12, "max_len": 9}
OWN = {"position_layout": "halves", "first_position": 1}
OPTIONS = [
    {**OWN, "norm": "pre"},
    {**OWN, "norm": "post", "tie_embeddings": "target", "activation": "gelu"},
    {**OWN, "norm": "post", "final_norm": True, "tie_embeddings": True, "activation": "gelu_tanh"},
    {**OWN, "norm": "pre", "final_norm": False, "activation": "silu", "eps": 1e-2},
    {"norm": "pre"},  # the paper's positions, as a table
    {"norm": "post", "positions": "learned"},
]


def made(options, seed=1):
    """A model with weights away from zeros and ones."""
    model = tnp.Transformer(11, 11, **SMALL, **options, seed=seed).eval()
    rng = np.random.default_rng(seed)
    for p in model.parameters():
        p.data += (0.2 * rng.standard_normal(p.shape)).astype("float32")
    return model


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_ctranslate2_gives_the_same_probabilities(tmp_path, options):
    package = pytest.importorskip("ctranslate2")
    model = made(options)
    ctranslate2.save(model, tmp_path, TOKENS, TOKENS)
    theirs = package.Translator(str(tmp_path), compute_type="float32")
    sources, targets = [list("abcab"), list("gf")], [list("bca"), list("dg")]
    for source, target, result in zip(sources, targets, theirs.score_batch(sources, targets), strict=True):
        ids = [TOKENS.index(token) for token in target]
        logits = model(np.array([[TOKENS.index(token) for token in source]]), np.array([[1, *ids]]))[0]
        logits = logits.astype("float64")
        log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        expected = log_p[range(len(ids) + 1), [*ids, 2]]
        np.testing.assert_allclose(result.log_probs, expected, rtol=0, atol=2e-5)  # both in float32


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_there_and_back(tmp_path, options):
    model = made(options)
    ctranslate2.save(model, tmp_path, TOKENS, TOKENS)
    again = ctranslate2.load(tmp_path, max_len=9)
    src, tgt = np.array([[4, 5, 6], [7, 8, 0]]), np.array([[1, 4], [1, 0]])
    np.testing.assert_allclose(again(src, tgt), model(src, tgt), rtol=0, atol=1e-6)  # a table is rounded once more
    assert again.config["tie_embeddings"] == model.config["tie_embeddings"]
    assert ctranslate2.load_vocabularies(tmp_path) == (TOKENS, TOKENS)
    state = again.state_dict()
    assert all((state[name] == array).all() for name, array in model.state_dict().items())


@pytest.mark.parametrize(
    ("model", "tokens", "error", "message"),
    [
        (lambda: tnp.layers.Linear(2, 2), TOKENS, TypeError, "got Linear, expected Transformer"),
        (lambda: made({"bias": False}), TOKENS, ValueError, "no bias=False"),
        (lambda: made({}), TOKENS[:-1], ValueError, "source_tokens must be 11 tokens, <unk> one of them, got 10"),
        (lambda: made({}), [*"abcdefghijk"], ValueError, "<unk> one of them"),
        (lambda: tnp.Transformer(11, 11, **{**SMALL, "max_len": None}), TOKENS, ValueError, "needs a max_len"),
    ],
    ids=["kind", "bias", "too few tokens", "no unk", "max_len"],
)
def test_what_ctranslate2_has_not(tmp_path, model, tokens, error, message):
    with pytest.raises(error, match=message):
        ctranslate2.save(model(), tmp_path, tokens, TOKENS)
    assert not list(tmp_path.iterdir())
