"""translate and attention_of: text in, text out, and where the model looked."""

import numpy as np
import pytest

import transformer_np as tnp
from transformer_np.data import Tokenizer, Vocabulary
from transformer_np.data.vocabulary import BOS, EOS, SPECIAL_TOKENS
from transformer_np.training import attention_of, translate

WORDS = ["a", " a", "b", " b", " c"]


@pytest.fixture
def translator():
    vocabulary = Vocabulary([*SPECIAL_TOKENS, *WORDS])
    model = tnp.Transformer(len(vocabulary), len(vocabulary), 8, 2, 1, 2, 16, dropout=0.5, max_len=12, seed=4)
    model.output.bias.data[EOS] = 0.7  # so that the untrained model's translations end, each at another length
    return model, Tokenizer(vocabulary), Tokenizer(vocabulary)


def test_translate_is_greedy_decoding_of_each_text(translator):
    model, source, target = translator
    texts = ["a b", "b", " a b c ", "b a c b", "a zzz"]
    expected = []
    for text in texts:
        ids = tnp.greedy(model, np.array([source.encode(text.strip())]))[0]
        expected.append(target.decode(ids))
    assert len(set(expected)) > 1
    assert translate(model, source, target, texts) == expected
    assert translate(model, source, target, texts, batch_size=2) == expected


def test_max_len(translator):
    model, source, target = translator
    model.output.bias.data[EOS] = -100
    ids = tnp.greedy(model, np.array([source.encode("a b")]), 3)[0]
    assert translate(model, source, target, ["a b"], max_len=3) == [target.decode(ids)]


@pytest.mark.parametrize("text", ["", "  ", "\n"])
def test_an_empty_text(translator, text):
    with pytest.raises(ValueError, match=r"there is nothing to translate: the text .* is empty"):
        translate(*translator, ["a", text])


def test_attention_of_shows_the_translation_it_was_made_with(translator):
    model, source, target = translator
    source_tokens, target_tokens, weights = attention_of(model, source, target, " a b c ")
    assert source_tokens == ["a", " b", " c"]
    out = tnp.greedy(model, np.array([source.encode("a b c")]))
    assert target_tokens == target.vocabulary.decode(out[0])
    assert weights.shape == (2, len(target_tokens), 3)
    np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-5)

    # By hand: the decoder sees bos and the translation but its last token; dropout is off.
    model.eval()
    model.forward(np.array([source.encode("a b c")]), np.concatenate([[[BOS]], out[:, :-1]], 1))
    np.testing.assert_array_equal(weights, model.decoder.layers[1].cross_attention.weights[0])


def test_attention_of_leaves_the_model_as_it_was(translator):
    model = translator[0]
    before = model.state_dict()
    attention_of(*translator, "a b")
    assert model.training
    assert all(part._saved is None for _, part in model.named_modules())
    assert all(np.array_equal(before[name], value) for name, value in model.state_dict().items())
    with pytest.raises(ValueError, match="empty"):
        attention_of(*translator, "  ")
    assert model.training
