"""Reading a gradient as a sum of the named terms of its formula: which weight did each term get?

For the layers whose backward is a sum, the right one has every weight 1. A least-squares fit reads the student's
weights, and is believed only when nothing is left over.
"""

import numpy as np

from ..mistakes.attention import turned
from ..mistakes.layer_norm import mean
from ..mistakes.softmax import total
from .compare import Clue


def softmax_terms(dy, c):
    return {"x": {"y dy": c.y * dy, "- y Σ dy y": -c.y * total(dy * c.y)}}


def log_softmax_terms(dy, c):
    return {"x": {"dy": dy, "- p Σ dy": -c.p * total(dy)}}


def layer_norm_terms(dy, c):
    dn = dy * c.gamma
    return {
        "x": {
            "γ dy / s": dn / c.s,
            "- mean(γ dy) / s, the mean term": -mean(dn) / c.s + 0 * dn,
            "- n mean(γ dy n) / s, the variance term": -c.n * mean(dn * c.n) / c.s,
        }
    }


def rms_norm_terms(dy, c):
    dn = dy * c.gamma
    return {
        "x": {
            "γ dy / r": dn / c.r,
            "- n mean(γ dy n) / r, the term of the root mean square": -c.n * mean(dn * c.n) / c.r,
        }
    }


def attention_terms(dy, c):
    dP = dy @ turned(c.v)
    parts = {"P dP": c.P * dP * c.scale, "- P Σ dP P, the softmax's sum": -c.P * total(dP * c.P) * c.scale}
    return {
        "q": {name: dS @ c.k for name, dS in parts.items()},
        "k": {name: turned(dS) @ c.q for name, dS in parts.items()},
    }


def cross_entropy_terms(dy, c):
    return {"logits": {"p / N": dy * c.counts * c.p / c.n, "- q / N, the target": -dy * c.counts * c.goal / c.n}}


TERMS = {
    "softmax": softmax_terms,
    "log softmax": log_softmax_terms,
    "layer norm": layer_norm_terms,
    "rms norm": rms_norm_terms,
    "attention": attention_terms,
    "cross-entropy": cross_entropy_terms,
}


def read_terms(c, recognised):
    """A clue with the weight of each term, or None where the gradient is not a sum of these terms."""
    role = recognised.role_of(c.e.name)
    make = TERMS.get(recognised.layer.name)
    terms = make(c.e.dy, recognised.cache).get(role) if make else None
    if not terms or not c.same_shape:
        return None
    columns = np.stack([term.ravel() for term in terms.values()], axis=1)
    if len(columns) < 2 * columns.shape[1] or np.linalg.cond(columns) > 1e6:
        return None
    weights = np.linalg.lstsq(columns, c.a.ravel(), rcond=None)[0]
    if not c.equal((columns @ weights).reshape(c.a.shape), c.a, 10) or np.allclose(weights, 1, atol=1e-7):
        return None
    if np.allclose(weights, weights[0], rtol=1e-7):
        return None  # a constant factor or a sign, which the rules for any layer name better
    read = []
    for name, weight in zip(terms, weights, strict=True):
        if abs(weight) < 1e-7:
            read.append(f"the term {name} is missing")
        elif abs(weight - 1) > 1e-7:
            read.append(f"the term {name} has the weight {weight:.4g} instead of 1")
    return Clue("missing term", True, "read as a sum of terms, " + " and ".join(read), recognised.layer.formula)
