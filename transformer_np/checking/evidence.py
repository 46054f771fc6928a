"""What the checker knows about one wrong gradient, and what a diagnosis of it looks like.

The engine fills an `Evidence` for each array whose gradient failed; `diagnosis.diagnose(evidence)` answers with a
list of `Diagnosis`, best first. Nothing here compares or computes: these are the two ends of the wire.
"""

from dataclasses import asdict, dataclass, field, replace

import numpy as np

from ..backend import to_numpy

# Every kind of mistake the diagnosis can name, and what the error then looks like. The catalogue and the rules use
# exactly these words, so that "the right kind" has a meaning that a test can hold.
KINDS = {
    "zero": "the gradient is zero everywhere",
    "sign": "the gradient has the opposite sign",
    "constant factor": "the gradient is the right one times a constant",
    "transposed": "the right numbers with two axes swapped",
    "reshaped": "the right numbers in another order: reshaped or flattened where axes had to be moved",
    "missing sum": "the gradient was not summed over an axis along which the value was shared",
    "extra sum": "the gradient was summed or averaged over an axis that had to be kept",
    "wrong axis": "a sum, mean or scan runs along the wrong axis",
    "repeated ids": "only rows whose id occurs more than once are wrong",
    "positions": "only some positions are wrong: the first, the last, the masked ones, the padding",
    "one head": "only some heads are wrong",
    "missing path": "the value is used in more than one place, and one of the paths back to it is left out",
    "other array": "this is the gradient of another array, or mixed with it",
    "stale": "this is a gradient from an earlier call, or it was added to one",
    "missing factor": "a factor of the chain rule is left out or there twice: entries are off by values of the layer",
    "wrong derivative": "the local derivative of the function is not the derivative of what forward computes",
    "missing term": "one term of the formula is left out, or has the wrong weight",
    "wrong value": "the formula is right, but is fed a value from another place: unscaled, undropped, before or after",
    "some entries": "most entries are right and a few are wrong",
    "unknown": "no known mistake explains this gradient",
}

CERTAINTIES = ("certain", "likely", "unknown")


@dataclass
class Evidence:
    """One array whose gradient is wrong, with everything the layer computed around it.

    Arrays may be NumPy or CuPy; `on_host()` gives a copy with NumPy float64 arrays, which is what the diagnosis reads.

    name: the array, as the user calls it ("x", "gamma", "attention.w_q"). kind: "input" or "parameter".
    analytic: what the user's backward returned, of whatever shape. numeric: the right gradient, in the own shape.
    error_bar: how far `numeric` may be off, a number or an array of its shape.
    inputs, parameters: name -> array, integer ids and masks too, in the order of forward's arguments.
    output, dy: what forward returned and the upstream gradient, of the same shape (0-d or 1.0 for a loss).
    analytic_all, numeric_all: name -> gradient of every array checked, this one too.
    attributes: plain values read from the object: p, n_heads, eps, causal, pad_id, and a dropout mask if it kept one.
    class_name: what the user calls the layer; a hint in the words of the answer, never proof of anything.
    previous: the analytic gradient of this array in a call before, with other inputs and another upstream gradient,
    when the engine made one.
    right_before: whether this gradient was right at the first point, and is wrong at a second.
    """

    name: str
    kind: str
    analytic: np.ndarray
    numeric: np.ndarray
    error_bar: np.ndarray | float
    inputs: dict = field(default_factory=dict)
    parameters: dict = field(default_factory=dict)
    output: np.ndarray | None = None
    dy: np.ndarray | None = None
    analytic_all: dict = field(default_factory=dict)
    numeric_all: dict = field(default_factory=dict)
    attributes: dict = field(default_factory=dict)
    class_name: str = ""
    previous: np.ndarray | None = None
    right_before: bool = False

    def __post_init__(self):
        if self.kind not in ("input", "parameter"):
            raise ValueError(f'Evidence: kind is {self.kind!r}, expected "input" or "parameter"')

    @property
    def value(self):
        """The array itself, or None where the engine did not hand it over."""
        return self.inputs.get(self.name, self.parameters.get(self.name))

    @property
    def arrays(self):
        """Every array by name: the inputs, then the parameters."""
        return {**self.inputs, **self.parameters}

    def on_host(self):
        """The same evidence with every array in NumPy, floats in float64."""

        def bring(value):
            if isinstance(value, dict):
                return {key: bring(item) for key, item in value.items()}
            if value is None or isinstance(value, (str, bool, int)):
                return value
            if not hasattr(value, "dtype") and not isinstance(value, (float, list, tuple)):
                return value
            array = to_numpy(value) if hasattr(value, "dtype") else value
            if not hasattr(array, "dtype"):
                return array
            integral = array.dtype.kind in "biuSUO"
            return array if integral else array.astype(np.float64)

        arrays = {
            key: bring(getattr(self, key))
            for key in ("inputs", "parameters", "output", "dy", "analytic_all", "numeric_all", "attributes", "previous")
        }
        return replace(
            self,
            analytic=np.asarray(bring(self.analytic), float),
            numeric=np.asarray(bring(self.numeric), float),
            error_bar=np.asarray(bring(self.error_bar), float),
            **arrays,
        )


@dataclass
class Diagnosis:
    """One answer to "what mistake would give exactly this gradient?", worded as a ladder of hints.

    kind: a key of KINDS. certainty: "certain" (exact, and nothing else explains it), "likely", or "unknown".
    array: whose gradient it is. where: which entries are wrong. shape_of_error: what the error looks like.
    line: which line of the derivation is wrong. fix: what to write instead; shown only when asked for.
    mistake: "layer/name" in the catalogue of known mistakes, or "" when a general rule found it.
    alternatives: other names for what would give the same numbers, when the data cannot tell them apart.
    """

    kind: str
    certainty: str
    array: str
    where: str
    shape_of_error: str
    line: str = ""
    fix: str = ""
    mistake: str = ""
    alternatives: tuple = ()

    def __post_init__(self):
        if self.kind not in KINDS:
            raise ValueError(f"Diagnosis: kind is {self.kind!r}, expected one of {', '.join(KINDS)}")
        if self.certainty not in CERTAINTIES:
            raise ValueError(f"Diagnosis: certainty is {self.certainty!r}, expected one of {', '.join(CERTAINTIES)}")

    @property
    def hints(self):
        """The rungs of the ladder, from the gentlest to the answer; empty rungs are left out."""
        return [rung for rung in (self.where, self.shape_of_error, self.line, self.fix) if rung]

    def text(self, show_fix=False):
        """The answer in a few lines; the fix only with show_fix."""
        lines = [f"{self.certainty}: {self.where}", f"  {self.shape_of_error}"]
        if self.line:
            lines.append(f"  look at: {self.line}")
        if self.alternatives:
            lines.append("  the same numbers would come from: " + "; ".join(self.alternatives))
        if show_fix and self.fix:
            lines.append(f"  fix: {self.fix}")
        return "\n".join(lines)

    def to_dict(self, show_fix=False):
        """A dict for JSON; the fix only with show_fix."""
        out = asdict(self)
        if not show_fix:
            del out["fix"]
        return out

    def __str__(self):
        return self.text()
