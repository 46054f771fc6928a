"""Cross-entropy of softmax(logits), mean over the tokens that count, with label smoothing."""

from types import SimpleNamespace

import numpy as np

from .museum import Layer
from .softmax import softmax


def smoothed(targets, V, smoothing):
    """1 - ε on the target and ε/V on every class, the target's included."""
    return (1 - smoothing) * np.eye(V)[np.clip(targets, 0, V - 1)] + smoothing / V


def forward(logits, targets, ignore_index, smoothing):
    p = softmax(logits)
    counts = targets != ignore_index
    goal = smoothed(targets, logits.shape[-1], smoothing)
    losses = -(goal * np.log(p)).sum(-1) * counts
    n = max(counts.sum(), 1)
    return losses.sum() / n, SimpleNamespace(p=p, targets=targets, counts=counts[..., None], goal=goal, n=n)


def backward(dy, c):
    return {"logits": dy * c.counts * (c.p - c.goal) / c.n}


def draw(rng):
    targets = rng.integers(1, 7, size=(3, 5))
    targets[0, 3:] = targets[1, 4:] = 0
    return {"logits": rng.normal(size=(3, 5, 7)), "targets": targets, "ignore_index": 0, "smoothing": 0.1}


CROSS_ENTROPY = Layer(
    "cross-entropy",
    "loss = - Σ q log p / N, p = softmax(z), N tokens that count;  dz = (p - q) / N, zero at padding",
    {"logits": "... V", "targets": "..."},
    ("logits", "targets"),
    forward,
    backward,
    draw,
    settings={"ignore_index": (-100, 0, -1), "smoothing": (0.0, 0.1, 0.2)},
)


@CROSS_ENTROPY.mistake(
    "constant factor",
    source="priyammaz/ManualTransformer, ratio exactly N",
    why="Forward takes the mean, backward forgets it.",
    line="dz = (p - q) / N",
    fix="divide by the number of tokens",
    hidden_when="one token",
)
def not_divided_by_n(dy, c):
    """The gradient is not divided by the number of tokens."""
    return {"logits": dy * c.counts * (c.p - c.goal)}


@CROSS_ENTROPY.mistake(
    "constant factor",
    source="AkiRusProd/numpy-transformer losses.py",
    why="The loss and the softmax both divide.",
    line="1/N occurs once",
    fix="divide once",
    hidden_when="one token",
)
def divided_by_n_twice(dy, c):
    """The gradient is divided by N twice."""
    return {"logits": dy * c.counts * (c.p - c.goal) / c.n**2}


@CROSS_ENTROPY.mistake(
    "constant factor",
    source="rziga/numpy-is-all-you-need, wrong by a factor T",
    why="Forward means over B·T tokens, backward divides by B.",
    line="N is the number of tokens that count, not of sentences",
    fix="divide by the same N as forward",
    hidden_when="T = 1",
)
def divided_by_the_batch(dy, c):
    """The gradient is divided by the batch size B."""
    return {"logits": dy * c.counts * (c.p - c.goal) / len(c.p)}


@CROSS_ENTROPY.mistake(
    "constant factor",
    source="BP-22: huggingface/transformers PR#5919",
    why="mean() counts the padding too.",
    line="N is the number of tokens that count",
    fix="divide by the tokens that are not padding",
    hidden_when="there is no padding",
)
def padding_counted(dy, c):
    """The gradient is divided by all tokens, padding included."""
    return {"logits": dy * c.counts * (c.p - c.goal) / c.counts.size}


@CROSS_ENTROPY.mistake(
    "positions",
    source="BP-21 and BP-22",
    why="The padding is masked in forward only.",
    line="dz is zero where the target is padding",
    fix="multiply by the mask",
    hidden_when="there is no padding",
)
def padding_gets_a_gradient(dy, c):
    """Padded positions get a gradient."""
    return {"logits": dy * (c.p - c.goal) / c.n}


@CROSS_ENTROPY.mistake(
    "sign", why="q - p for p - q.", line="dz = p - q: too much probability is pushed down", fix="p - q"
)
def target_minus_probability(dy, c):
    """The gradient has the opposite sign."""
    return {"logits": -backward(dy, c)["logits"]}


@CROSS_ENTROPY.mistake("missing term", why="The one-hot target is forgotten.", line="dz = p - q", fix="subtract q")
def target_not_subtracted(dy, c):
    """Only p comes back: q is not subtracted."""
    return {"logits": dy * c.counts * c.p / c.n}


@CROSS_ENTROPY.mistake(
    "missing term",
    why="Only the target's logit is thought to matter.",
    line="p - q: every class has a gradient",
    fix="add p",
)
def only_the_target(dy, c):
    """Only - q comes back: p is left out."""
    return {"logits": -dy * c.counts * c.goal / c.n}


@CROSS_ENTROPY.mistake(
    "wrong value",
    source="BP-21's kin: smoothing in the loss, not in its gradient",
    why="Label smoothing was added to forward later.",
    line="q is the smoothed target in both",
    fix="use the smoothed q",
    hidden_when="no smoothing",
)
def smoothing_forgotten(dy, c):
    """Backward uses the hard target, forward the smoothed one."""
    hard = np.eye(c.p.shape[-1])[c.targets]
    return {"logits": dy * c.counts * (c.p - hard) / c.n}


@CROSS_ENTROPY.mistake(
    "wrong value",
    source="BP-21: ε/(V - 1) and ε/V",
    why="ε is shared among the other classes in one text, among all in another.",
    line="q = (1 - ε) onehot + ε/V, as in forward",
    fix="use one convention",
    hidden_when="no smoothing",
)
def smoothing_over_the_others(dy, c):
    """Backward shares ε among the V - 1 other classes, forward among all V."""
    V = c.p.shape[-1]
    onehot = np.eye(V)[c.targets]
    epsilon = V * c.goal.min()
    return {"logits": dy * c.counts * (c.p - (1 - epsilon) * onehot - epsilon / (V - 1) * (1 - onehot)) / c.n}


@CROSS_ENTROPY.mistake(
    "missing factor",
    why="Softmax's Jacobian is left out: the loss is differentiated by the probabilities.",
    line="dz = p - q already holds softmax's Jacobian; -q/p does not",
    fix="p - q",
)
def derivative_by_the_probabilities(dy, c):
    """- q / p comes back, the gradient of the probabilities, not of the logits."""
    return {"logits": -dy * c.counts * c.goal / c.p / c.n}


@CROSS_ENTROPY.mistake(
    "wrong value",
    why="The softmax of the short cut p - q is applied, and softmax's backward once more.",
    line="p - q is already the gradient of the logits",
    fix="do not go through softmax's backward again",
)
def softmax_backward_twice(dy, c):
    """p - q is sent through softmax's backward once more."""
    d = c.p - c.goal
    return {"logits": dy * c.counts * c.p * (d - (d * c.p).sum(-1, keepdims=True)) / c.n}


@CROSS_ENTROPY.mistake(
    "constant factor",
    why="mean() without an axis also averages over the classes.",
    line="the mean is over tokens only",
    fix="divide by N, not by N V",
)
def divided_by_the_classes(dy, c):
    """The gradient is divided by the number of classes as well."""
    return {"logits": backward(dy, c)["logits"] / c.p.shape[-1]}


@CROSS_ENTROPY.mistake(
    "constant factor",
    why="The loss is the end of the chain, so dy = 1 was taken for granted.",
    line="dz = dy (p - q) / N",
    fix="multiply by the upstream gradient",
    hidden_when="dy = 1",
)
def upstream_forgotten(dy, c):
    """The upstream gradient of the loss is left out."""
    return {"logits": c.counts * (c.p - c.goal) / c.n}
