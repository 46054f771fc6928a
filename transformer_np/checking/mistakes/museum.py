"""How a layer of the museum is written: a right forward and backward, and beside them the ways to get it wrong."""

from dataclasses import dataclass, field

from ..evidence import KINDS

OWN = "our own mutation"


@dataclass
class Mistake:
    """One named wrong backward.

    name: short, in lower case. what: one sentence. why: how it comes to be written. source: where it was seen.
    kind: what the error looks like, a key of KINDS. line: the line of the derivation that is wrong, in symbols. fix:
    what to write instead. hidden_when: conditions under which the wrong gradient equals the right one, so that no
    check can see it. equivalent: True when it always does: a change that looks wrong and is not.
    """

    layer: "Layer"
    name: str
    what: str
    why: str
    source: str
    kind: str
    line: str
    fix: str
    wrong: callable
    hidden_when: str = ""
    equivalent: bool = False

    @property
    def title(self):
        """ "layer/name", unique in the catalogue."""
        return f"{self.layer.name}/{self.name}"

    def backward(self, dy, cache):
        """All gradients of the layer by name, wrong where this mistake makes them wrong."""
        return {**self.layer.backward(dy, cache), **self.wrong(dy, cache)}

    def arrays(self, dy, cache):
        """The names of the arrays whose gradient this mistake touches."""
        return tuple(self.wrong(dy, cache))


@dataclass
class Layer:
    """One layer of the museum: `y, cache = forward(**values)`, `gradients = backward(dy, cache)`, a dict by name.

    shapes: array name -> its axes in letters, "... D" for any leading axes; the order is that of forward's arguments.
    inputs: the names among them that are inputs; the rest are parameters. draw(rng): values that hide nothing: distinct
    sizes, random gamma, repeated ids. optional: name -> the number that stands for an array the user lacks.
    settings: name -> the plain values to try when the user's object does not say. infer(values, y): arrays that a
    layer draws by itself, read back from its output. formula: forward and right backward in symbols.
    """

    name: str
    formula: str
    shapes: dict
    inputs: tuple
    forward: callable
    backward: callable
    draw: callable
    optional: dict = field(default_factory=dict)
    settings: dict = field(default_factory=dict)
    infer: callable = None
    mistakes: list = field(default_factory=list)

    @property
    def parameters(self):
        """The names of the arrays that are parameters."""
        return tuple(name for name in self.shapes if name not in self.inputs)

    def mistake(self, kind, why, line, fix, source=OWN, hidden_when="", equivalent=False):
        """Hang the decorated function in the museum: `wrong(dy, cache)` returns only the gradients that it gets wrong.

        The function's name is the mistake's name, its docstring says what it is.
        """
        if kind not in KINDS:
            raise ValueError(f"{self.name}: kind is {kind!r}, expected one of {', '.join(KINDS)}")

        def hang(wrong):
            name = wrong.__name__.replace("_", " ").strip()
            what = " ".join(wrong.__doc__.split())
            self.mistakes.append(
                Mistake(self, name, what, why, source, kind, line, fix, wrong, hidden_when, equivalent)
            )
            return wrong

        return hang
