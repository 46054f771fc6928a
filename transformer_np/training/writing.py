"""Using a trained language model: it writes on from a text, for longer than it can look back."""

import numpy as np

from ..backend import array_module
from ..generation import beam_search, sample


def write_on(model, ids, max_len, *, beam_size=None, seed=None, eos_id=None, **settings):
    """Let a model without an encoder write on from a list of ids; return the new ids, at most `max_len`, as a list.

    It samples, and `settings` are those of `sample`; with `beam_size` it searches, and they are those of `beam_search`.
    It ends before the end token. A model with a limit (`max_len` in its config) that has filled it goes on from the
    last half of what it sees; so does one whose prompt is longer. A beam search then begins anew for each stretch.
    The same seed gives the same text. Raises ValueError for no ids, a max_len below 1, and settings that do not fit.
    """
    if not ids or max_len < 1:
        raise ValueError(f"write_on: expected ids and a max_len of at least 1, got {len(ids)} ids and {max_len!r}")
    limit = model.config.get("max_len")
    rng, xp = np.random.default_rng(seed), array_module(model.parameters()[0].data)
    ids, new = [int(i) for i in ids], []
    while len(new) < max_len:
        seen, room = [*ids, *new], max_len - len(new)
        if limit is not None:
            seen = seen if len(seen) <= limit else seen[-max(1, limit // 2) :]
            room = min(room, limit - len(seen) + 1)
        prompt, options = xp.asarray([seen]), {"max_len": room, "eos_id": eos_id, **settings}
        if beam_size is None:
            out = sample(model, prompt, seed=rng, **options)
        else:
            out = beam_search(model, prompt, beam_size, **options)
        out = out[0].tolist()
        if eos_id in out:
            return new + out[: out.index(eos_id)]
        new += out
    return new
