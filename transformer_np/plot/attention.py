"""Attention weights as heat maps with the tokens beside them."""

import re

import numpy as np

from ..backend import to_numpy
from ..checks import describe
from .figures import drawable, families_for, figure

MISSING_NOTE = "code points stand for letters that no installed font has (Noto Sans CJK, for one, has most)"


def attention(weights, query_tokens, key_tokens, title=None, ax=None):
    """Draw attention weights: a row for each query, a column for each key, dark where much is taken.

    `weights` is (T, S), or (H, T, S) for H heads side by side; `query_tokens` and `key_tokens` are T and S strings in
    any script. Where no installed font has a character, its code point is written instead, and a note says so.
    `ax` is one matplotlib Axes, or as many as heads. Returns the Figure.
    Raises ValueError where weights and tokens differ in number.
    """
    if weights.ndim not in (2, 3):
        raise ValueError(
            f"attention: weights must be (T, S), or (H, T, S), got shape {weights.shape}; "
            "of a batch (B, H, T, S) draw one sentence, weights[0]"
        )
    heads = weights if weights.ndim == 3 else weights[None]  # (H, T, S)
    if heads.shape[1:] != (len(query_tokens), len(key_tokens)):
        raise ValueError(
            f"attention: weights of shape {weights.shape} need {heads.shape[1]} query and {heads.shape[2]} key tokens, "
            f"got {len(query_tokens)} and {len(key_tokens)}"
        )
    if ax is None:
        size = (0.9 + 0.24 * heads.shape[2], 1.0 + 0.24 * heads.shape[1])
        fig, axes = figure(len(heads), size=size)
        axes = list(axes[0])
    else:
        axes = list(np.ravel(ax))
        fig = axes[0].figure
    if len(axes) != len(heads):
        raise ValueError(f"attention: {len(heads)} heads need as many axes, got {len(axes)}")
    families, missing = families_for([*query_tokens, *key_tokens])
    font = {"family": families, "size": 8}
    for i, (one, head) in enumerate(zip(axes, heads, strict=True)):
        one.imshow(head, cmap="Blues", vmin=0, vmax=1, aspect="auto")
        one.set_xticks(range(len(key_tokens)), [drawable(t.strip(), missing) for t in key_tokens], rotation=90, **font)
        labels = [drawable(t.strip(), missing) for t in query_tokens] if i == 0 else []
        one.set_yticks(range(len(query_tokens)) if i == 0 else [], labels, **font)
        if len(heads) > 1:
            one.set_title(f"head {i + 1}", fontsize=9)
    axes[0].set_ylabel("query")
    axes[0].set_xlabel("key")
    notes = [title] if title else []
    if missing:
        notes.append(MISSING_NOTE)
    if notes:
        fig.suptitle("\n".join(notes), fontsize=9)
    return fig


def attention_heads(layers, query_tokens, key_tokens, which="", sentence=0, title=None, ax=None):
    """Draw every head of every layer: a row of maps for each layer, a column for each head, tokens at the rim.

    `layers` is a model after a forward (outside `tnp.inference()`, which keeps no weights), of whose attentions those
    are drawn whose dotted name contains `which`: "encoder", "decoder.layers.0", "cross_attention" ..; or a list of
    weights, a (H, T, S) for each layer. Of a batch, number `sentence` is drawn. `query_tokens` and `key_tokens` are T
    and S strings in any script, as for `attention`. `ax` is an array of axes (layers, heads). Returns the Figure.
    Raises ValueError where there is no attention of that name, or its sizes are not those of the tokens.
    """
    named = _weights_of(layers, which, sentence)
    expected = (len(query_tokens), len(key_tokens))
    for name, weights in named.items():
        if weights.ndim != 3 or weights.shape[1:] != expected or len(weights) != len(next(iter(named.values()))):
            raise ValueError(
                f"attention_heads: expected (H, {expected[0]}, {expected[1]}) in every layer, for the tokens given, "
                f"got {weights.shape} in {name}; narrow it down by which=..."
            )
    n_heads = len(next(iter(named.values())))
    size = (0.5 + 0.13 * expected[1], max(0.9, 0.4 + 0.13 * expected[0]))
    grid = figure(n_heads, len(named), size=size)[1] if ax is None else np.asarray(ax)
    if grid.shape != (len(named), n_heads):
        raise ValueError(f"attention_heads: needs axes of shape ({len(named)}, {n_heads}), got {grid.shape}")
    families, missing = families_for([*query_tokens, *key_tokens])
    rows, columns = ([drawable(t.strip(), missing) for t in tokens] for tokens in (query_tokens, key_tokens))
    font = {"family": families, "size": 5.5}
    for i, (name, weights) in enumerate(named.items()):
        for j, (one, head) in enumerate(zip(grid[i], weights, strict=True)):
            one.imshow(head, cmap="Blues", vmin=0, vmax=1, aspect="auto")
            one.set_yticks(range(len(rows)) if j == 0 else [], rows if j == 0 else [], **font)
            below = i == len(named) - 1
            one.set_xticks(range(len(columns)) if below else [], columns if below else [], rotation=90, **font)
            one.tick_params(length=1.5, pad=1)
            if i == 0:
                one.set_title(f"head {j + 1}", fontsize=8)
        grid[i, 0].set_ylabel(re.sub(r"\.(?!\d)", "\n", name), fontsize=6)  # decoder / layers.0 / cross_attention
    notes = [title] if title else []
    if missing:
        notes.append(MISSING_NOTE)
    if notes:
        grid[0, 0].figure.suptitle("\n".join(notes), fontsize=9)
    return grid[0, 0].figure


def _weights_of(layers, which, sentence):
    """Return {name: weights (H, T, S)}; of a model, each attention once, under its outermost name."""
    if isinstance(layers, (list, tuple)):
        return {f"layer {i}": to_numpy(weights) for i, weights in enumerate(layers, 1)}
    if not hasattr(layers, "named_modules"):
        raise TypeError(f"attention_heads: expected a model or a list of weights, got {describe(layers)}")
    found, seen = {}, set()
    for name, module in layers.named_modules():
        weights = getattr(module, "weights", None)
        if getattr(weights, "ndim", 0) == 4 and id(weights) not in seen and which in name:
            seen.add(id(weights))
            found[name] = to_numpy(weights[sentence])  # (H, T, S)
    if not found:
        raise ValueError(
            f"attention_heads: no attention weights in {type(layers).__name__} under {which!r}: run forward"
        )
    return found
