"""The boxes of the model's picture, read from the steps of a trace: which layer holds which, and in what order.

The result is columns of Boxes, each to be drawn from the bottom up as in figure 1 of the paper.
"""

import re
from dataclasses import dataclass, field

LABELS = {
    "MultiHeadAttention": "Multi-Head Attention",
    "FeedForward": "Feed Forward",
    "GatedFeedForward": "Gated Feed Forward",
    "LayerNorm": "Norm",
    "RMSNorm": "Norm",
    "SinusoidalPositions": "Positional Encoding",
    "LearnedPositions": "Learned Positions",
    "ScaledDotProductAttention": "Scaled Dot-Product Attention",
    "BlockwiseAttention": "Blockwise Attention",
    "OutputProjection": "Linear",
}
COLOURS = {
    "Embedding": "embedding",
    "MultiHeadAttention": "attention",
    "ScaledDotProductAttention": "attention",
    "BlockwiseAttention": "attention",
    "AdditiveAttention": "attention",
    "FeedForward": "feed",
    "GatedFeedForward": "feed",
    "LayerNorm": "norm",
    "RMSNorm": "norm",
    "OutputProjection": "linear",
    "Linear": "linear",
}
NORMS = ("LayerNorm", "RMSNorm")


@dataclass
class Box:
    """One box. covers: the layers whose steps belong to it, "{}" in them for the number of the layer in its stack.

    shape: "box", "add" (a circle with a plus, `label` beside it), "row" (of `parts`, side by side), or "stack" (`parts`
    above each other in a frame, repeated `n` times; `covers` then names the list). residual: how many items further
    down in the same column the path around begins, 0 for none.
    """

    label: str
    covers: tuple = ()
    colour: str = "plain"
    shape: str = "box"
    parts: list = field(default_factory=list)
    n: int = 1
    residual: int = 0


class Outline:
    """The tree of layers in the order in which forward entered them."""

    def __init__(self, steps):
        self.kinds, self.order = {}, []
        for step in sorted(steps, key=lambda s: s.phase != "forward"):
            if step.phase == "loss" or step.module == "loss":
                continue
            if step.module not in self.kinds:
                self.order.append(step.module)
            if self.kinds.get(step.module, "Checkpoint") == "Checkpoint":  # the layer inside has the same name
                self.kinds[step.module] = step.kind
        self.has_loss = any(s.module == "loss" for s in steps)

    def children(self, path):
        """The layers directly inside, in the order in which they ran."""
        start = f"{path}." if path else ""
        inside = [m for m in self.order if m != path and m.startswith(start)]
        return [m for m in inside if not any(m.startswith(f"{other}.") for other in inside)]

    def columns(self):
        """Return the columns of the picture: encoder and decoder where there are both, else one."""
        top = self.children("")
        if {"encoder", "decoder"} <= set(top):
            left = [m for m in top if m == "encoder" or m.startswith("src")]
            right = [m for m in top if m not in left]
            return [self._column(left, "Inputs"), [*self._column(right, "Outputs (shifted right)"), *self._loss()]]
        if not top:
            kind = self.kinds.get("", "model")
            return [[Box(LABELS.get(kind, kind), ("",), COLOURS.get(kind, "plain")), *self._loss()]]
        if self.kinds.get("") in ("EncoderLayer", "DecoderLayer"):
            return [[*self.layer(""), *self._loss()]]
        return [[*self._column(top, ""), *self._loss()]]

    def _loss(self):
        return [Box("Softmax & loss", ("loss",), "loss")] if self.has_loss else []

    def _column(self, paths, inputs):
        found = [Box(inputs, (), shape="text")] if inputs else []
        return found + self.items(paths)

    def items(self, paths):
        """The Boxes of layers that run one after another; those of one list become a stack."""
        found, done = [], set()
        for path in paths:
            if path in done:
                continue
            match = re.fullmatch(r"(.*?)\.?(\d+)", path)
            if match:
                alike = [p for p in paths if re.fullmatch(re.escape(match[1]) + r"\.?\d+", p)]
                done.update(alike)
                pattern = path[: len(path) - len(match[2])] + "{}"
                parts = self.layer(path, pattern)
                found.append(Box(match[1], (pattern,), shape="stack", parts=parts, n=len(alike)))
            elif self.kinds[path] in ("Encoder", "Decoder"):
                found += self.items(self.children(path))
            else:
                found += self._single(path)
        return _rows(found)

    def _single(self, path):
        kind = self.kinds[path]
        if kind == "RecurrentStack":
            return [self._recurrent(path)]
        if kind == "Dropout":  # the paper draws none: its steps belong to what it follows
            return []
        shape = "add" if kind in ("SinusoidalPositions", "LearnedPositions") else "box"
        covers = (path, path.replace("positions", "dropout")) if shape == "add" else (path,)
        return [Box(_label(path, kind), covers, COLOURS.get(kind, "plain"), shape)]

    def _recurrent(self, path):
        """The Box of a stack of recurrent layers, of one direction each or of two side by side."""
        layers = [m.split(".") for m in self.children(path) if self.kinds[m] != "Dropout"]
        directions = sorted({m[-1] for m in layers})
        pattern, arrows = f"{path}.layers.{{}}", ("", "") if len(directions) == 1 else (" →", " ←")
        boxes = [
            Box(_label(path, self.kinds[f"{path}.layers.0.{k}"]) + arrows[int(k)], (f"{pattern}.{k}",), "feed")
            for k in directions
        ]
        boxes[0].covers += (path,)
        parts = [Box("", shape="row", parts=boxes)] if len(boxes) > 1 else boxes
        return Box("layers", (pattern,), shape="stack", parts=parts, n=len(layers) // len(directions))

    def layer(self, path, pattern=None):
        """The Boxes inside one layer of a stack, with the paths around its sub-layers."""
        pattern = path if pattern is None else pattern
        inside = self.children(path)
        if self.kinds.get(path) not in ("EncoderLayer", "DecoderLayer"):
            boxes = self.items(inside) or [Box(_label(path, self.kinds[path]), (path,))]
            for box in boxes:
                box.covers = tuple(c.replace(path, pattern, 1) if path else c for c in box.covers)
            return boxes
        norms = [m for m in inside if self.kinds[m] in NORMS or m.rpartition(".")[2].startswith("norm")]
        dropouts = [m for m in inside if self.kinds[m] == "Dropout"]
        sub_layers = [m for m in inside if m not in (*norms, *dropouts)]
        post = not norms or inside.index(norms[0]) > inside.index(sub_layers[0])
        found = []
        for i, sub in enumerate(sub_layers):
            kind = self.kinds[sub]
            masked = kind == "MultiHeadAttention" and sub.endswith("self_attention") and len(sub_layers) == 3
            middle = Box("Masked " * masked + LABELS.get(kind, kind), (sub,), COLOURS.get(kind, "plain"))
            dropout = dropouts[i : i + 1]
            if post:
                found += [middle, Box("Add & Norm", (*norms[i : i + 1], *dropout), "norm", residual=1)]
            else:
                norm = [Box("Norm", (n,), "norm") for n in norms[i : i + 1]]
                found += [*norm, middle, Box("Add", tuple(dropout) or ("?",), shape="add", residual=1 + len(norm))]
        for box in found:
            box.covers = tuple(pattern + c[len(path) :] for c in box.covers)
        return found


def _label(path, kind):
    if kind == "Embedding":
        names = {"src_embedding": "Input Embedding", "tgt_embedding": "Output Embedding"}
        names["positions"] = "Learned Positions"
        return names.get(path, "Embedding")
    return LABELS.get(kind, re.sub(r"(?<=[a-z])(?=[A-Z])", " ", kind))


def _rows(boxes):
    """Put the projections of attention, w_q, w_k, w_v, side by side."""
    beside = [b for b in boxes if b.covers and re.search(r"(^|\.)w_[qkv]$", b.covers[0])]
    if len(beside) < 2:
        return boxes
    for box in beside:
        box.label = {"q": "Q", "k": "K", "v": "V"}[box.covers[0][-1]]
    at = boxes.index(beside[0])
    rest = [b for b in boxes if b not in beside]
    return [*rest[:at], Box("", shape="row", parts=beside), *rest[at:]]
