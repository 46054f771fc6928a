"""How to try out a class nobody said anything about: sizes by the names of its arguments, inputs until one fits.

A file can always say it better: a function `gradcheck_example()` that returns `(subject, *inputs)`.
"""

import inspect
import itertools
from collections import namedtuple

import numpy as np

SIZES = {
    "d_in": 5,
    "in_features": 5,
    "n_in": 5,
    "input_size": 5,
    "input_dim": 5,
    "fan_in": 5,
    "in_dim": 5,
    "nin": 5,
    "d_out": 4,
    "out_features": 4,
    "n_out": 4,
    "output_size": 4,
    "output_dim": 4,
    "fan_out": 4,
    "out_dim": 4,
    "nout": 4,
    "d_model": 8,
    "dim": 8,
    "d": 8,
    "n_features": 8,
    "features": 8,
    "num_features": 8,
    "normalized_shape": 8,
    "size": 8,
    "embed_dim": 8,
    "n_embd": 8,
    "hidden_size": 8,
    "d_hidden": 6,
    "hidden": 6,
    "emb": 8,
    "model_dim": 8,
    "embedding_dim": 8,
    "n_heads": 2,
    "num_heads": 2,
    "heads": 2,
    "h": 2,
    "n_head": 2,
    "nhead": 2,
    "d_ff": 10,
    "ff_dim": 10,
    "hidden_dim": 10,
    "d_query": 8,
    "d_attention": 6,
    "n_channels": 3,
    "d_k": 4,
    "d_v": 4,
    "d_key": 8,
    "d_value": 8,
    "d_head": 4,
    "head_dim": 4,
    "vocab_size": 11,
    "n_vocab": 11,
    "num_embeddings": 11,
    "src_vocab_size": 11,
    "tgt_vocab_size": 11,
    "vocab": 11,
    "n_classes": 5,
    "max_len": 16,
    "max_length": 16,
    "block_size": 16,
    "seq_len": 16,
    "context": 16,
    "n_layers": 2,
    "n_groups": 2,
    "groups": 2,
    "num_layers": 2,
    "kernel_size": 3,
    "patch_size": 2,
    "image_size": 4,
    "channels": 3,
    "in_channels": 3,
    "out_channels": 4,
    "p": 0.0,
    "dropout": 0.0,
    "rate": 0.0,
    "eps": 1e-5,
    "activation": "relu",
    "n_labels": 5,
    "n_buckets": 8,
}
ID_NAMES = ("ids", "tokens", "idx", "src", "tgt", "token", "words", "indices", "input_ids")
TARGET_NAMES = ("target", "targets", "labels", "label", "y", "classes")
MASK_NAMES = ("mask", "causal")
LENGTH_NAMES = ("lengths", "length", "lens")
WEIGHT_NAMES = ("w", "weight", "weights")


def required_arguments(function):
    """The names of a callable's positional arguments without default."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return []
    return [
        p.name for p in parameters if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]


def construct(cls):
    """Make an instance with sizes chosen by the names of the arguments; dropout is off where it can be.

    Raises ValueError that names the argument that no size is known for.
    """
    names = required_arguments(cls)
    unknown = [name for name in names if name.lower() not in SIZES]
    if unknown:
        raise ValueError(
            f"{cls.__name__}: no idea what to pass for {', '.join(unknown)}; say it with --init "
            f'"{cls.__name__}(...)", or write a function gradcheck_example() that returns (layer, x)'
        )
    options = [SIZES[name.lower()] for name in names]
    try:
        return cls(*options, dropout=0.0) if "dropout" in inspect.signature(cls).parameters else cls(*options)
    except (TypeError, ValueError) as error:
        shown = ", ".join(f"{n}={v!r}" for n, v in zip(names, options, strict=True))
        raise ValueError(
            f"{cls.__name__}({shown}) raised {type(error).__name__}: {error}; say how with --init"
        ) from error


def widths(subject):
    """Likely lengths of the last axis, the likeliest first: those of the object's own sizes, then of its arrays."""
    own = vars(subject) if hasattr(subject, "__dict__") else {}
    found = [
        own[name]
        for name in ("d_in", "d_model", "in_features", "n_in", "dim", "input_size", "d_key", "d_head", "d_k")
        if isinstance(own.get(name), (int, np.integer))
    ]
    found += [v.shape[0] for v in own.values() if isinstance(v, np.ndarray) and v.ndim > 0]
    found += [
        getattr(v, "data", v).shape[0]
        for v in own.values()
        if isinstance(getattr(v, "data", None), np.ndarray) and v.data.ndim > 0
    ]
    return list(dict.fromkeys([*found, 8, 5, 4, 6]))


def draw_inputs(subject, seed=0):
    """Draw inputs that the subject's forward accepts: (B, T, width) first, then fewer axes.

    Raises ValueError where nothing fits.
    """
    forward, names = _forward(subject)
    rng, first = np.random.default_rng(seed), None
    for dtype in ("float64", getattr(subject, "dtype", "float64")):
        for leading in ((2, 3), (3,), (2, 2, 3), (2, 3, 4), ()):
            for width in widths(subject):
                for guess in _guesses(names):
                    inputs = [_draw(name, leading, width, rng, subject, dtype, guess) for name in names]
                    try:
                        with np.errstate(all="ignore"):
                            forward(*inputs)
                    except Exception as error:  # this guess does not fit; the reason for the likeliest one is told
                        first = first or (described(subject, inputs), error)
                        continue
                    return inputs
    shapes, error = first
    if isinstance(error, (AttributeError, NameError)):  # no input would mend that
        raise ValueError(f"forward({', '.join(names)}) raised {type(error).__name__}: {error}")
    raise ValueError(
        f"no inputs found that forward({', '.join(names)}) accepts; with {shapes} it raised "
        f'{type(error).__name__}: {error}; say them with --inputs "randn(2, 3, 8)"'
    )


def _forward(subject):
    """The forward of an object, a pair of functions or a function, and the names of what it has to be given."""
    forward = subject.forward if hasattr(subject, "forward") else subject[0] if isinstance(subject, tuple) else subject
    return forward, required_arguments(forward) or ["x"]


def described(subject, inputs):
    """The names and shapes of the inputs of a subject's forward, in words."""
    names = _forward(subject)[1]
    return ", ".join(f"{n} {np.shape(x)}" if np.ndim(x) else f"{n}={x}" for n, x in zip(names, inputs, strict=True))


Guess = namedtuple("Guess", "targets mask vectors")  # what doubtful arguments are


def _guesses(names):
    """What doubtful arguments may be, the likeliest first: targets ids or floats; which mask; vectors, and how much
    longer than the last axis of x they are."""
    lower = {name.lower() for name in names}
    targets = ("ids", "floats") if lower & set(TARGET_NAMES) else ("ids",)
    masks = ("padding", "look-ahead") if lower & set(MASK_NAMES) else ("padding",)
    wider = 1 if lower & set(WEIGHT_NAMES) else 0  # a bias has as many numbers as the weight has columns
    vectors = {"gamma": 0, "beta": 0, "bias": wider}
    if lower & {*WEIGHT_NAMES, "gamma", "beta"}:
        vectors |= {"b": wider, "g": 0}
    return [Guess(*each, vectors) for each in itertools.product(targets, masks)]


def _draw(name, leading, width, rng, subject, dtype, guess):
    lower = name.lower()
    if lower.startswith("n_"):
        return 4
    if lower in ID_NAMES:
        own = vars(subject) if hasattr(subject, "__dict__") else {}
        sizes = [int(v) for k, v in own.items() if "vocab" in k or k == "num_embeddings"]
        return rng.integers(0, min([*sizes, 11]), leading or (4,))
    if lower in TARGET_NAMES and guess.targets == "ids":
        return rng.integers(0, width, leading)
    if lower in (*LENGTH_NAMES, *MASK_NAMES) and leading:
        T = leading[-1]
        lengths = T - np.arange(leading[0]) % T  # no two rows alike
        if lower in LENGTH_NAMES:
            return lengths
        return np.tri(T, dtype=bool) if guess.mask == "look-ahead" else np.arange(T) < lengths[:, None]
    if lower in guess.vectors:
        return rng.standard_normal(width + guess.vectors[lower]).astype(dtype)
    if lower in WEIGHT_NAMES:
        return rng.standard_normal((width, width + 1)).astype(dtype)
    return rng.standard_normal((*leading, width)).astype(dtype)


def pairs(namespace):
    """Yield (name, (forward, backward)) for functions `NAME_forward` and `NAME_backward` of a file."""
    for name, value in namespace.items():
        if callable(value) and name.endswith("_forward") and callable(namespace.get(name[:-8] + "_backward")):
            yield name[:-8], (value, namespace[name[:-8] + "_backward"])
