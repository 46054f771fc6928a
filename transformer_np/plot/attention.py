"""Attention weights as heat maps with the tokens beside them."""

import numpy as np

from .figures import drawable, families_for, figure


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
        notes.append("code points stand for letters that no installed font has (Noto Sans CJK, for one, has most)")
    if notes:
        fig.suptitle("\n".join(notes), fontsize=9)
    return fig
