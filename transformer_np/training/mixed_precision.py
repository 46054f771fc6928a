"""Mixed precision: forward and backward in float16 or bfloat16, parameters and their updates in float32.

float16 has 11 bits and ends at 65504 and at 6e-8, bfloat16 has 8 bits and the range of float32. A weight of 1 plus a
step of 0.0001 is 1 again in both, so weights are kept in float32 and rounded for each step's products. Gradients are
often below 6e-8: in float16 the loss is therefore multiplied by a large number before backward, and the gradients
divided by it after.
Source: Micikevicius et al. 2017, "Mixed precision training".
"""

import math

from ..backend import float_dtype, is_float, is_half
from ..checks import check_names, check_number, check_positive, check_real
from .replica import paired, replicate, synchronise

PRECISIONS = ("float16", "bfloat16")
SMALLEST_SCALE = 2.0**-20  # a scale that has fallen so far has not been the trouble


class LossScaler:
    """The number that the loss is multiplied by: doubled now and then, halved where a gradient was not finite.

    `scale` is the number, `n_skipped` how many steps were left out so far. After `growth_interval` steps in a row with
    finite gradients the scale grows by `growth_factor`; after a step without, it shrinks by `backoff_factor`. The
    defaults are those of torch.amp.GradScaler: the scale starts so high that the first steps may well be left out.
    Raises ValueError for factors on the wrong side of 1.
    """

    def __init__(self, scale=65536.0, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000):
        check_real(self, scale=scale, growth_factor=growth_factor, backoff_factor=backoff_factor)
        check_positive(self, growth_interval=growth_interval)
        if not (0 < scale < math.inf and 1 < growth_factor < math.inf and 0 < backoff_factor < 1):
            raise ValueError(
                "LossScaler: expected scale > 0, growth_factor > 1 and 0 < backoff_factor < 1, "
                f"got {scale!r}, {growth_factor!r} and {backoff_factor!r}"
            )
        self.scale = float(scale)
        self.growth_factor, self.backoff_factor = float(growth_factor), float(backoff_factor)
        self.growth_interval = growth_interval
        self.n_good = 0  # steps in a row with finite gradients, since the scale last changed
        self.n_skipped = 0

    def update(self, finite):
        """Adapt the scale after a step, `finite` saying whether its gradients were.

        Raises FloatingPointError where the scale has become so small that something else must be wrong.
        """
        if not finite:
            self.n_good = 0
            self.n_skipped += 1
            self.scale *= self.backoff_factor
            if self.scale < SMALLEST_SCALE:
                raise FloatingPointError(
                    f"LossScaler: gradients hold infinity or NaN even with the loss scaled by {self.scale:g}: "
                    "try a smaller learning rate, or bfloat16"
                )
            return
        self.n_good += 1
        if self.n_good == self.growth_interval:
            self.n_good = 0
            self.scale = min(self.scale * self.growth_factor, 2.0**64)

    def state_dict(self):
        """Return the numbers needed to go on later just where one stopped."""
        return {"scale": self.scale, "n_good": self.n_good, "n_skipped": self.n_skipped}

    def check_state_dict(self, state):
        """Raise what `load_state_dict` would: TypeError for no dict, ValueError for wrong names or numbers."""
        who = "LossScaler.load_state_dict"
        check_names(who, state, self.state_dict())
        check_number(who, "scale", state["scale"], math.ulp(0.0), "a number above 0")
        for name in ("n_good", "n_skipped"):
            check_number(who, name, state[name], 0, "a whole number of at least 0", kinds="iu")

    def load_state_dict(self, state):
        """Take over a state_dict. Raises as `check_state_dict`, before anything changes."""
        self.check_state_dict(state)
        self.scale = float(state["scale"])
        self.n_good, self.n_skipped = int(state["n_good"]), int(state["n_skipped"])


class HalfCopy:
    """A copy of a model in float16 or bfloat16: its parameters are those of the model, rounded at every `refresh`.

    Raises ValueError for another precision, for a model that is itself in one of these types, and for bfloat16 where
    the package ml_dtypes is missing.
    """

    def __init__(self, model, precision):
        if any(is_half(p.data) for p in model.parameters()):
            raise ValueError(
                f"HalfCopy: the model must be float32, got {model.dtype.name}: its parameters take steps "
                f"too small for {precision}, which is used for a copy of them"
            )
        self.dtype, self.original = float_dtype(precision), model
        self.model = replicate(model)

    def refresh(self):
        """Round the parameters as they are now; return the copy of the model."""
        synchronise(paired(self.model, self.original))
        return self.model.astype(self.dtype)

    def rounded(self, inputs):
        """Return the inputs of a forward, arrays of floats in the copy's type, ids and whatever else as they are."""
        return [x.astype(self.dtype) if hasattr(x, "dtype") and is_float(x) else x for x in inputs]

    def hand_over(self, scale):
        """Add the copy's gradients, divided by `scale`, to those of the model, in the model's type."""
        for mine, original in zip(self.model.parameters(), self.original.parameters(), strict=True):
            if mine.has_grad:
                wide = mine.grad.astype(original.data.dtype)
                wide *= 1 / scale
                original.accumulate(wide)
                mine.zero_grad()
