"""A trace as one HTML file to step through: no server, no network, no framework."""

import json
import re
from html import escape
from pathlib import Path

import numpy as np

from ..run import objects_in
from .axes import Axes
from .badges import badges_of
from .figure import Figure
from .outline import Outline
from .packing import Pack, compress
from .patches import patches_of
from .scenes import scenes_of, title_of

FOLDER = Path(__file__).parent
STYLE, SCRIPTS = "steps.css", ("numbers.js", "origins.js", "trail.js", "heatmap.js", "picture.js", "steps.js")
NUMBERS = 800_000  # other than zero: as many fit into 3 MB; a longer trace shows the beginnings of its largest arrays
CHECKED = 2_000_000  # parameters; a larger model is not gradient-checked unless asked
HEADLESS = ("Conv1D", "ConvBlock", "PatchEmbedding", "ViT")  # whose arrays of four axes are no heads side by side
KINDS = {"b": "bool", "i": "int", "u": "int"}


def write_page(trace, path, **options):
    """Write the page to `path`, as text in UTF-8; return the path. For the options see `page_of`."""
    Path(path).write_text(page_of(trace, **options), encoding="utf-8")
    return path


def notebook_view(trace, height=820):
    """The page inside a frame of a notebook cell, as HTML."""
    kind = escape(type(trace.model).__name__)
    return (
        f'<iframe srcdoc="{escape(page_of(trace))}" title="{kind}, step by step" sandbox="allow-scripts" '
        f'style="width:100%;height:{height}px;border:1px solid #8888;border-radius:6px"></iframe>'
    )


def page_of(
    trace,
    src_tokens=None,
    tgt_tokens=None,
    title=None,
    *,
    src_vocabulary=None,
    tgt_vocabulary=None,
    check=None,
    numbers=NUMBERS,
):
    """Return the page as text.

    src_tokens, tgt_tokens: labels of the positions, one list, or one for each sentence; those of `trace.tokens` by
    default, and the row and column of each patch for a model of images. src_vocabulary, tgt_vocabulary: labels of the
    rows of embeddings and of the columns of logits.
    check: whether to gradient-check every layer for its badge (a few seconds for a small model); by default unless the
    model is large. numbers: how many numbers other than zero the page may hold; beyond that it shows the first rows and
    columns of the largest arrays, and says so.
    """
    tokens, patches = _sentences(trace, src_tokens, tgt_tokens), patches_of(trace)
    if patches is not None and not any(tokens.values()):
        tokens = patches.tokens
    page = Page(trace, tokens, (src_vocabulary, tgt_vocabulary), numbers, patches)
    if check is None:
        check = sum(p.size for p in trace.parameters.values()) <= CHECKED
    badges = badges_of(trace) if check else {}
    return page.text(title or f"{type(trace.model).__name__}, step by step", badges)


def _sentences(trace, src, tgt):
    given = trace.tokens or {}
    out = {}
    for side, tokens in (("src", src), ("tgt", tgt)):
        tokens = given.get(side) if tokens is None else tokens
        tokens = [] if tokens is None else list(tokens)
        nested = tokens and isinstance(tokens[0], (list, tuple))
        out[side] = [[str(t) for t in text] for text in (tokens if nested else [tokens] if tokens else [])]
    return out


class Page:
    """Everything that the page's scripts need, gathered from a trace."""

    def __init__(self, trace, tokens, vocabularies, numbers, patches=None):
        self.trace, self.tokens, self.patches = trace, tokens, patches
        sides = zip(("src", "tgt"), vocabularies, strict=True)
        self.words = {side: None if words is None else list(map(str, words)) for side, words in sides}
        recurrent = {name: p.reverse for name, p in objects_in(trace.model).values() if hasattr(p, "reverse")}
        self.axes = Axes(tokens, self.words, recurrent)
        self.steps = {step.name: step for step in trace.steps}
        self.pack, self.views, self._numbers = Pack(), [], {}
        self.scenes = scenes_of(trace)
        self.edge = self._edge(numbers)
        self.outline = Outline(trace.steps)
        self.figure = Figure(self.outline.columns(), f"The {type(trace.model).__name__}: its layers")

    def text(self, title, badges):
        """Return the page."""
        document = json.dumps(self.document(title, badges), ensure_ascii=False, separators=(",", ":")).encode()
        scripts = "\n".join((FOLDER / name).read_text(encoding="utf-8") for name in SCRIPTS)
        parts = {
            "TITLE": escape(title),
            "STYLE": (FOLDER / STYLE).read_text(encoding="utf-8"),
            "FIGURE": self.figure.svg(),
            "DOCUMENT": compress(document),
            "LETTERS": str(len(document)),
            "BYTES": str(5 * self.pack.size),
            "ARRAYS": self.pack.text(),
            "SCRIPT": scripts,
        }
        template = (FOLDER / "steps.html").read_text(encoding="utf-8")
        return re.sub(r"<!--([A-Z]+)-->", lambda m: parts[m[1]], template)

    def document(self, title, badges):
        """All but the numbers, as plain values."""
        scenes = [self._scene(scene) for scene in self.scenes]
        return {
            "title": title,
            "loss": self.trace.loss,
            "tokens": self.tokens,
            "words": self.words,
            "letters": {str(size): letter for size, letter in self.trace.letters.items()},
            "views": self.views,
            "size": self.pack.size,
            "scenes": scenes,
            "patches": self._patches(),
            "boxes": self.figure.boxes,
            "stacks": self.figure.stacks,
            "modules": {m: {"kind": k, "inside": self.outline.children(m)} for m, k in self.outline.kinds.items()},
            "badges": badges,
        }

    def _scene(self, scene):
        step = scene.first
        box, layer = self._box(scene)
        return {
            "phase": step.phase,
            "module": step.module,
            "kind": step.kind,
            "method": step.method,
            "title": title_of(scene),
            "enters": scene.enters,
            "source": step.source,
            "place": f"{Path(step.file).name}:{step.line}",
            "counts": {n: k for n, k in step.sizes.items() if re.search(rf"(\[[^\]]*|^for .*)\b{n}\b", step.source)},
            "formula": scene.formula,
            "words": scene.words,
            "outputs": [
                {
                    "name": s.name,
                    "variable": s.variable,
                    "view": self._view(s.value, s.variable, s.module, s.letters),
                    "tree": tree,
                    "partner": None if p is None else [p[0], self._named_view(*p)],
                }
                for s, tree, p in zip(scene.outputs, scene.trees, scene.partners, strict=True)
            ],
            "inputs": [self._input(step, name, array) for name, array in scene.inputs],
            "box": box,
            "layer": layer,
        }

    def _input(self, step, name, array):
        """An input, with what the statement calls it where that is a place in a larger array."""
        places = [text for text, piece in step.pieces.items() if piece == name]
        found = {"name": name, "view": self._named_view(name, array)}
        return {**found, "shown": places[0]} if places else found

    def _patches(self):
        """What the page needs to draw patches as they are: the view of the images, and their cut."""
        if self.patches is None or self.tokens != self.patches.tokens:
            return None
        step = self.steps[self.patches.images]
        view = self._view(step.value, step.variable, step.module, step.letters)
        return {"view": view, "size": self.patches.size, "rows": self.patches.rows, "columns": self.patches.columns}

    def _named_view(self, name, array):
        step = self.steps.get(name)
        if step is None:
            module, _, variable = name.rpartition(".")
            return self._view(array, variable, module, "", parameter=True)
        return self._view(array, step.variable, step.module, step.letters)

    def _view(self, array, variable, module, letters, parameter=False):
        """Return the number of the view that shows an array with the labels of its axes."""
        parameter = parameter or self._is_parameter(module, variable)
        picture = self.patches is not None and self.patches.is_picture(array, module)
        axes = [""] * array.ndim if picture else self.axes.of(array.shape, variable, module, parameter)
        kept = array[_corner(array.shape, self.edge)]
        headless = array.ndim == 4 and self.outline.kinds.get(module) in HEADLESS
        key = (self.pack.add(kept), array.shape, tuple(axes), array.dtype.kind, letters, picture, headless)
        if key not in self._numbers:
            self._numbers[key] = len(self.views)
            view = {"at": key[0], "shape": list(array.shape), "kind": KINDS.get(array.dtype.kind, "float")}
            if kept.shape != array.shape:
                view["kept"] = list(kept.shape)
            if any(axes):
                view["axes"] = axes
            if letters:
                view["letters"] = letters
            if headless:
                view["headless"] = True
            if picture:
                view["picture"] = "gradient" if variable.startswith("d") else "image"
            if view["kind"] == "int" and kept.size and np.abs(kept).max() > 99999:
                view["values"] = kept.ravel().tolist()
            self.views.append(view)
        return self._numbers[key]

    def _is_parameter(self, module, variable):
        """Whether the array is a parameter's gradient, and so has no tokens along its axes."""
        name = f"{module}.{variable[1:]}" if module else variable[1:]
        return variable.startswith("d") and name in self.trace.parameters

    def _edge(self, numbers):
        """The most entries of an axis that can be kept; None for all of them."""
        arrays = {}
        for scene in self.scenes:
            for array in [s.value for s in scene.outputs] + [a for _, a in scene.inputs]:
                arrays[array.tobytes()] = array
        for edge in (None, 512, 384, 256, 192, 128, 96, 64, 48, 32, 24, 16, 8):
            if sum(np.count_nonzero(a[_corner(a.shape, edge)]) for a in arrays.values()) <= numbers:
                return edge
        return 8

    def _box(self, scene):
        """(number of the box that a scene belongs to, number of the layer in its stack); None where there is none."""
        step = scene.first
        inner = None if scene.enters else self._last_called(step)
        for module in [m for m in (inner, step.module) if m is not None]:
            best = (None, None, -1)
            for number, box in enumerate(self.figure.boxes):
                for cover in box["covers"]:
                    match = re.match(re.escape(cover).replace(r"\{\}", r"(\d+)") + r"(\.|$)", module)
                    if cover == "" or match:
                        layer = int(match[1]) if match and match.lastindex == 2 else None
                        best = max(best, (number, layer, len(cover)), key=lambda b: b[2])
            if best[0] is not None:
                return best[:2]
        return None, self._layer(step.module)

    def _layer(self, module):
        """Which layer of a stack a module is in, where it belongs to no box."""
        for stack in self.figure.stacks:
            match = re.match(re.escape(stack["pattern"]).replace(r"\{\}", r"(\d+)") + r"(\.|$)", module)
            if match:
                return int(match[1])
        return None

    def _last_called(self, step):
        """The sub-layer whose call stands outermost in a statement: its box is where the statement belongs."""
        called = re.findall(r"self\.([A-Za-z_][\w.]*?)(?:\.(?:forward|backward))?\(", step.source)
        start = f"{step.module}." if step.module else ""
        return next((start + c for c in called if start + c in self.outline.kinds), None)


def _corner(shape, edge):
    """The slices of the first `edge` entries along each axis."""
    return tuple(slice(0, edge) for _ in shape)
