"""What stands along the axes of an array: tokens of source or target, words of a vocabulary, or just numbers."""

PAIRS = ("scores", "weights", "dropped", "mask", "memory_mask", "may_look", "dropout_mask", "bias", "position_bias")
LISTS = ("ids", "targets", "counts", "segments", "src", "tgt", "src_mask", "tgt_mask")
LISTS += ("total", "score", "scale", "loss")
QUADS = ("sums", "hidden", "dsums")  # of additive attention: a row of numbers for each pair of query and key
OF_SOURCE = ("memory", "dmemory", "memory_mask", "src", "src_mask")
KEYS = ("k", "v", "key", "value", "keys", "values")


class Axes:
    """Says for each array what its axes are. tokens: {"src": [[..], ..], "tgt": ..}, a list for each sentence.

    An axis is one of "src" and "tgt" (tokens of the sentence on view), "src all" and "tgt all" (those of all sentences,
    one after another), "src words" and "tgt words" (a vocabulary), or "" (numbers).
    recurrent: {layer: whether it reads from the end} of the layers whose arrays inside have time first, (T, B, ..).
    """

    def __init__(self, tokens, vocabularies, recurrent=None):
        self.tokens, self.vocabularies, self.recurrent = tokens, vocabularies, recurrent or {}
        self.n = {side: max(map(len, texts), default=0) for side, texts in tokens.items()}

    def of(self, shape, variable, module, parameter=False):
        """Return what stands along each axis of an array of this shape."""
        out = ["" for _ in shape]
        if not parameter:
            for axis in self._token_axes(shape, variable, module):
                out[axis] = self._side(shape, axis, variable, module)
        for axis, size in enumerate(shape):
            if not out[axis]:
                out[axis] = self._words(size, axis, shape, module, parameter)
        return out

    def _token_axes(self, shape, variable, module):
        pair = variable in PAIRS or variable[1:] in PAIRS
        inside = module in self.recurrent and (len(shape) < 3 or shape[0] != self._batch())
        if inside:
            whole = self._batch() == 1 and not self.recurrent[module] and (len(shape) == 2 or shape[1:2] == (1,))
            return [0] if whole else []
        if len(shape) == 4 and variable in QUADS:
            return [1, 2]
        if len(shape) >= 3:
            return [len(shape) - 2] + ([len(shape) - 1] if pair else [])
        if len(shape) == 2:
            listed = variable in LISTS and shape[0] == self._batch()
            return [1] if listed else [0]
        return [0] if variable in LISTS and len(shape) == 1 else []

    def _batch(self):
        return max(map(len, self.tokens.values()), default=1)

    def _side(self, shape, axis, variable, module):
        """Whose tokens an axis has: by its length, and where both have that length, by the layer."""
        fits = []
        for side, n in self.n.items():
            if n and shape[axis] == n:
                fits.append(side)
            elif n and len(shape) <= 2 and shape[axis] == n * len(self.tokens[side]):
                fits.append(f"{side} all")
        if len(fits) < 2:
            return fits[0] if fits else ""
        last = axis == len(shape) - 1
        from_source = module.startswith(("src", "encoder")) or variable in OF_SOURCE
        if "cross_attention" in module:
            part = module.rpartition(".")[2]
            of_keys = part in ("w_k", "w_v") or variable.removeprefix("d") in KEYS
            from_source = of_keys or (last and len(shape) > 2)
        elif module.partition(".")[0] == "attention":  # of a recurrent decoder
            of_keys = module.endswith("w_k") or variable.removeprefix("d") in KEYS
            from_source = of_keys or (variable in QUADS and axis == 2) or (last and len(shape) > 2)
        return next(f for f in fits if f.startswith("src") == from_source)

    def _words(self, size, axis, shape, module, parameter):
        sides = [s for s, words in self.vocabularies.items() if words and len(words) == size]
        if not sides:
            return ""
        if parameter and module.startswith(("src_", "tgt_", "embedding")):
            side = "src" if module.startswith("src") and "src" in sides else sides[-1]
            return f"{side} words" if axis == 0 else ""
        about_words = module in ("", "loss", "output", "head") or module.endswith(("output", "word_head"))
        return f"{'tgt' if 'tgt' in sides else sides[0]} words" if about_words else ""
