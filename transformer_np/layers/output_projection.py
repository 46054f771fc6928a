"""The output projection: from the decoder's vectors to one logit for every token of the vocabulary."""

import math

import numpy as np

from ..checks import check_floats, check_positive
from ..module import Module, Parameter
from .linear import column_sums


class OutputProjection(Module):
    """logits = x Eᵀ + b, with a matrix E of one row per token, which may be an embedding's own ("tied").

    Shapes: x (..., D), E (V, D), b (V,), logits (..., V). Pass `weight=embedding.weight` to tie: the very same
    Parameter then gathers the gradients of both uses. Unlike the embedding, the product is not scaled by sqrt(D).
    laid_out: while a text is generated, a dict in which to keep a copy of Eᵀ, row after row: BLAS lays the right factor
    out anew before it begins, and for the few rows of single tokens that is most of its work. Make a new dict when E
    has changed.
    Backward, with N rows: dx = dlogits E,  dE = dlogitsᵀ x,  db = sum of dlogits over the rows.
    Raises ValueError for a tied weight of another shape, and for shapes and dtypes that do not fit.
    Source: section 3.4; Press and Wolf 2016. Derivation: docs/derivations/embedding.md.
    """

    def __init__(self, d_model, vocab_size, weight=None, bias=True, *, seed=None, dtype="float32"):
        super().__init__(seed, dtype)
        check_positive(self, d_model=d_model, vocab_size=vocab_size)
        if weight is not None and weight.shape != (vocab_size, d_model):
            raise ValueError(
                f"OutputProjection: tied weight must have shape {(vocab_size, d_model)}, got {weight.shape}"
            )
        self.d_model, self.vocab_size = d_model, vocab_size
        if weight is None:
            weight = Parameter(
                (self.rng.standard_normal((vocab_size, d_model)) / math.sqrt(d_model)).astype(self.dtype)
            )
        self.weight = weight
        self.bias = Parameter(np.zeros(vocab_size, self.dtype)) if bias else None

    def forward(self, x, laid_out=None):
        """x (..., D) -> logits (..., V)."""
        check_floats(self, "x", x, last=self.d_model, dtype=self.dtype)
        x_rows = x.reshape(-1, self.d_model)  # (N, D)
        if laid_out is None:
            logits_rows = x_rows @ self.weight.data.T  # (N, V)
        else:
            if self not in laid_out:
                laid_out[self] = self.weight.data.T.copy()  # (D, V)
            logits_rows = x_rows @ laid_out[self]
        if self.bias is not None:
            logits_rows += self.bias.data
        logits = logits_rows.reshape(*x.shape[:-1], self.vocab_size).astype(x.dtype, copy=False)
        self.save_for_backward(x, output=logits)
        return logits

    def backward(self, dlogits):
        """dlogits (..., V) -> dx (..., D); adds dE and db."""
        (x,) = self.saved(dlogits)
        x_rows, dlogits_rows = x.reshape(-1, self.d_model), dlogits.reshape(-1, self.vocab_size)  # (N, D), (N, V)
        self.weight.accumulate(dlogits_rows.T @ x_rows)
        if self.bias is not None:
            self.bias.accumulate(column_sums(dlogits_rows))
        return (dlogits_rows @ self.weight.data).reshape(x.shape).astype(x.dtype, copy=False)
