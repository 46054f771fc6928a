"""Which layer of the museum is this, and which of its mistakes gives exactly the student's gradient?

A layer is recognised by what it computes, never by its name: the reference forward, fed with the student's arrays, must
give the student's output. Names only decide which pairing of arrays is tried first.
"""

from dataclasses import dataclass
from itertools import islice, product

import numpy as np

from ..mistakes import LAYERS, Layer

ALIASES = {
    "W": ("weight", "w", "kernel"),
    "b": ("bias", "b"),
    "gamma": ("gamma", "weight", "gain", "scale", "g"),
    "beta": ("beta", "bias", "shift"),
    "table": ("table", "weight", "embedding", "e", "wte"),
    "x": ("x", "input"),
    "w_1": ("w_1", "w1", "weight1", "first.weight"),
    "w_2": ("w_2", "w2", "weight2", "second.weight"),
    "b_1": ("b_1", "b1", "bias1", "first.bias"),
    "b_2": ("b_2", "b2", "bias2", "second.bias"),
    "w_q": ("w_q", "wq", "q", "query"),
    "w_k": ("w_k", "wk", "k", "key"),
    "w_v": ("w_v", "wv", "v", "value"),
    "w_o": ("w_o", "wo", "o", "out"),
    "q": ("q", "query"),
    "k": ("k", "key"),
    "v": ("v", "value"),
}
SETTING_NAMES = {
    "eps": ("eps", "epsilon"),
    "n_heads": ("n_heads", "num_heads", "heads", "n_head", "h"),
    "p": ("p", "dropout", "rate", "drop", "p_drop"),
    "ignore_index": ("ignore_index", "pad_id", "padding_idx", "pad"),
    "smoothing": ("smoothing", "label_smoothing"),
    "causal": ("causal",),
    "scaled": ("scaled", "scale"),
    "base": ("base", "theta"),
}
TRIES = 120  # reference forwards tried for one layer


@dataclass
class Recognised:
    """A layer of the museum with the student's arrays in its roles.

    names: role -> the student's name. turned: the roles whose matrix the student keeps transposed. error: how far the
    outputs are apart, relative to the largest.
    """

    layer: Layer
    names: dict
    turned: frozenset
    cache: object
    error: float

    def role_of(self, name):
        """The role that the student's array plays, or None."""
        return next((role for role, given in self.names.items() if given == name), None)

    def bring(self, role, gradient):
        """A student's gradient in the layout of the museum."""
        return np.swapaxes(gradient, 0, 1) if role in self.turned and np.ndim(gradient) == 2 else gradient


def likeness(role, name):
    """0 for the role's own name, up to 3 for a stranger: the order in which arrays are tried."""
    name = name.lower()
    aliases = ALIASES.get(role, (role,))
    if name == role.lower() or name in aliases:
        return 0
    last = name.rsplit(".", 1)[-1]
    if last in aliases:
        return 1
    return 2 if any(len(alias) > 1 and alias in name for alias in aliases) else 3


def fits(shape, spec, letters):
    """The letters with this shape's sizes added, or None where it does not fit the spec."""
    axes = spec.split()
    if axes and axes[0] == "...":
        axes = axes[1:]
        if len(shape) < max(len(axes), 1):
            return None
        shape = shape[len(shape) - len(axes) :]
    if len(shape) != len(axes):
        return None
    letters = dict(letters)
    for letter, size in zip(axes, shape, strict=True):
        if letters.setdefault(letter, size) != size:
            return None
    return letters


def pairings(layer, arrays, kinds, turn):
    """Every way to put the student's arrays in the layer's roles that fits in shape and kind, likely ones first."""
    roles = list(layer.shapes)

    def fill(i, chosen, letters):
        if i == len(roles):
            if len(chosen) - list(chosen.values()).count(None) == len(arrays):
                yield dict(chosen), letters
            return
        role, spec = roles[i], layer.shapes[roles[i]]
        names = [n for n in arrays if n not in chosen.values() and arrays[n].dtype.kind in kinds[role]]
        for name in sorted(names, key=lambda n: likeness(role, n)):
            shape = arrays[name].shape
            shape = shape[::-1] if turn and role in layer.parameters and len(shape) == 2 else shape
            found = letters if spec == "?" else fits(shape, spec, letters)
            if found is not None:
                yield from fill(i + 1, {**chosen, role: name}, found)
        if role in layer.optional or (layer.infer and role == "keep"):
            yield from fill(i + 1, {**chosen, role: None}, letters)

    yield from fill(0, {}, {})


def settings_of(layer, attributes):
    """The combinations of plain settings to try: what the object says first."""
    choices = []
    for name, tried in layer.settings.items():
        said = [attributes[key] for key in SETTING_NAMES.get(name, (name,)) if key in attributes]
        said = [value for value in said if isinstance(value, (int, float, bool, np.number))]
        if said or tried:
            choices.append([(name, value) for value in dict.fromkeys([*said, *tried])])
    return [dict(combination) for combination in product(*choices)]


def values_for(layer, chosen, letters, arrays, turned, output):
    """The arguments of the layer's forward, without its settings."""
    values = {}
    for role, name in chosen.items():
        if name is not None:
            values[role] = arrays[name].T if role in turned else arrays[name]
        elif role in layer.optional:
            spec = layer.shapes[role]
            shape = () if spec == "?" else tuple(letters[letter] for letter in spec.split())
            values[role] = np.full(shape, layer.optional[role])
    if layer.infer:
        values = {**layer.infer(values, output), **values}
    return values


def could_be(layer, kinds, arrays):
    """Whether the number of arrays of each kind fits: every needed role filled, no array left over."""
    needed = [r for r in layer.shapes if r not in layer.optional and not (layer.infer and r == "keep")]
    floats = sum(a.dtype.kind == "f" for a in arrays.values())
    wanted = sum(kinds[r] == "f" for r in needed)
    spare = len(layer.shapes) - len(needed)
    return len(needed) <= len(arrays) <= len(layer.shapes) and wanted <= floats <= wanted + spare


def recognise_one(layer, e):
    """The best pairing of the student's arrays with this layer that gives the student's output, or None."""
    example = layer.draw(np.random.default_rng(0))
    kinds = {
        role: {"f": "f", "i": "iu", "b": "bf" if layer.infer else "b"}[np.asarray(example[role]).dtype.kind]
        for role in layer.shapes
    }
    masks = {k: v for k, v in e.attributes.items() if hasattr(v, "dtype") and np.ndim(v) and v.dtype.kind == "b"}
    arrays = {name: np.asarray(v) for name, v in {**e.arrays, **masks}.items() if v is not None}
    if not could_be(layer, kinds, arrays):
        return None
    scale, best = float(np.abs(e.output).max()) or 1.0, None
    for turn in (False, True):
        for chosen, letters in islice(pairings(layer, arrays, kinds, turn), TRIES // 4):
            turned = frozenset(
                r for r, n in chosen.items() if turn and n and r in layer.parameters and arrays[n].ndim == 2
            )
            if turn and not turned:
                break
            try:
                values = values_for(layer, chosen, letters, arrays, turned, e.output)
            except (ValueError, IndexError, TypeError):
                continue  # nothing can be inferred: the arrays do not go together
            for settings in settings_of(layer, e.attributes)[:TRIES]:
                try:
                    with np.errstate(all="ignore"):
                        y, cache = layer.forward(**{**values, **settings})
                except (ValueError, IndexError, TypeError, ZeroDivisionError):
                    continue  # the arrays do not go together in these roles
                if np.shape(y) != np.shape(e.output):
                    continue
                error = float(np.abs(y - e.output).max()) / scale
                if error < 1e-6 and (best is None or error < best.error / 2):
                    best = Recognised(layer, chosen, turned, cache, error)
            if best is not None and best.error < 1e-13:
                return best
    return best


def recognise(e):
    """Every layer of the museum that computes the student's output from the student's arrays, the closest first."""
    if e.output is None or e.dy is None or not np.all(np.isfinite(e.output)):
        return []
    found = [recognise_one(layer, e) for layer in LAYERS]
    return sorted((r for r in found if r is not None), key=lambda r: r.error > 1e-11)


def matches(c, recognised):
    """The known mistakes that give the student's gradient of this array, as (mistake, whole) pairs.

    whole: whether the mistake also gives the student's gradient of every other array that it touches. Where some
    mistakes agree with the student on all arrays of the layer, only those are kept.
    """
    role = recognised.role_of(c.e.name)
    if role is None:
        return []
    layer, cache, dy = recognised.layer, recognised.cache, c.e.dy
    right = layer.backward(dy, cache)
    student = recognised.bring(role, c.a)
    found = []
    for mistake in layer.mistakes:
        try:
            wrong = mistake.wrong(dy, cache)
        except (ValueError, IndexError):
            continue  # it needs an axis that these arrays do not have, such as that of the sequence
        if role not in wrong or c.equal(wrong[role], right[role]) or not c.equal(student, wrong[role]):
            continue
        whole = {**right, **wrong}
        same = {
            r: c.equal(recognised.bring(r, np.asarray(c.e.analytic_all[name])), whole[r], 10)
            for r, name in recognised.names.items()
            if name in c.e.analytic_all and r in whole
        }
        found.append((mistake, all(same.values()), all(same.get(r, True) for r in wrong)))
    complete = [(mistake, True) for mistake, everywhere, _ in found if everywhere]
    return complete or [(mistake, touched) for mistake, _, touched in found]
