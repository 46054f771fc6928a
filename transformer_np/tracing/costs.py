"""What a layer costs by its formula: multiplications and additions of its matrix products, and numbers kept.

A product of (N, K) and (K, M) is N K M multiplications and as many additions: 2 N K M floating-point operations.
Only matrix products count: they are what grows with the square of the width, or of the length.
"""

import math


def _rows(x):
    return math.prod(x[:-1])


def linear(layer, shapes):
    """N rows: y = x W, then dx = dy Wᵀ and dW = xᵀ dy, of the same size each. Keeps x."""
    n = _rows(shapes["x"])
    one = 2 * n * layer.d_in * layer.d_out
    return ("2 N d_in d_out", one), ("4 N d_in d_out", 2 * one), ("N d_in", n * layer.d_in)


def output_projection(layer, shapes):
    """As the linear map, with V outputs."""
    n = _rows(shapes["x"])
    one = 2 * n * layer.d_model * layer.vocab_size
    return ("2 N D V", one), ("4 N D V", 2 * one), ("N D", n * layer.d_model)


def attention(layer, shapes):
    """Forward has q kᵀ and P v; backward two for each: dv and dP, dq and dk. Keeps q, k, v and P."""
    *batch, t, k = shapes["q"]
    s, kv = shapes["v"][-2:]
    n = math.prod(batch)
    kept = n * (t * k + s * k + s * kv + t * s)
    formula = "B H (T K + S K + S Kv + T S)"
    if layer.dropout.training and layer.dropout.p > 0:
        kept, formula = kept + 2 * n * t * s, "B H (T K + S K + S Kv + 3 T S)"
    if "bias" in shapes:
        kept, formula = kept + math.prod(shapes["bias"]), formula + " + bias"
    one = 2 * n * t * s * (k + kv)
    return ("2 B H T S (K + Kv)", one), ("4 B H T S (K + Kv)", 2 * one), (formula, kept)


def blockwise_attention(layer, shapes):
    """Backward computes the scores once more. What causal=True leaves out is not taken off."""
    *batch, t, k = shapes["q"]
    s, kv = shapes["v"][-2:]
    n = 2 * math.prod(batch) * t * s
    return ("2 B H T S (K + Kv)", n * (k + kv)), ("2 B H T S (3 K + 2 Kv)", n * (3 * k + 2 * kv)), None


def additive_attention(layer, shapes):
    """Without its two projections: n v and P value forward; dvalue, dP and dv backward."""
    b, t, _ = shapes["query"]
    s, width = shapes["value"][1:]
    a, n = layer.v.shape[0], 2 * b * t * s
    return ("2 B T S (A + Dv)", n * (a + width)), ("2 B T S (A + 2 Dv)", n * (a + 2 * width)), None


def conv1d(layer, shapes):
    """A linear map of k neighbours. Keeps x."""
    n = _rows(shapes["x"])
    one = 2 * n * layer.kernel_size * layer.d_in * layer.d_out
    return ("2 N k d_in d_out", one), ("4 N k d_in d_out", 2 * one), None


def recurrent(layer, shapes):
    """N = B T rows, M hidden units, G M numbers a step: x W_ih and h W_hh, then two products for each."""
    n, m = _rows(shapes["x"]), layer.d_hidden
    one = 2 * n * layer.n_gates * m * (layer.d_in + m)
    return ("2 N G M (d_in + M)", one), ("4 N G M (d_in + M)", 2 * one), None


def norm(layer, shapes):
    """No products. Keeps the normalised numbers, and one number a row."""
    n = _rows(shapes["x"])
    return None, None, ("N D + N", n * layer.d_model + n)


def keeps(times, formula):
    """A layer without products that keeps so many arrays of the size of its input."""
    return lambda layer, shapes: (None, None, (formula, times * math.prod(shapes["x"])))


def dropout(layer, shapes):
    """No products. Keeps its mask, in training."""
    drops = layer.training and layer.p > 0
    return None, None, ("N" if drops else "0", math.prod(shapes["x"]) if drops else 0)


COSTS = {
    "AdditiveAttention": additive_attention,
    "BlockwiseAttention": blockwise_attention,
    "Conv1D": conv1d,
    "Dropout": dropout,
    "GELU": keeps(2, "2 N"),
    "GRU": recurrent,
    "LSTM": recurrent,
    "LayerNorm": norm,
    "Linear": linear,
    "OutputProjection": output_projection,
    "RMSNorm": norm,
    "RNN": recurrent,
    "ReLU": keeps(1, "N"),
    "ScaledDotProductAttention": attention,
    "SiLU": keeps(2, "2 N"),
    "Sigmoid": keeps(1, "N"),
    "Softmax": keeps(1, "N"),
    "Tanh": keeps(1, "N"),
}
