"""Learning-rate schedules: functions of the step, counted from 1, that an optimiser takes as its lr."""

from ..checks import check_positive


class NoamSchedule:
    """lr(step) = scale * d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5).

    It rises in a straight line for `warmup_steps` steps, then falls with the inverse square root. At step 0, before
    the first update, it is 0, the start of that line. Raises ValueError for a negative step and for warmup_steps < 1.
    Source: section 5.3, equation 3. Derivation: docs/derivations/adam.md.
    """

    def __init__(self, d_model, warmup_steps=4000, scale=1.0):
        check_positive(self, d_model=d_model, warmup_steps=warmup_steps)
        if not scale > 0:
            raise ValueError(f"NoamSchedule: scale must be positive, got {scale!r}")
        self.d_model, self.warmup_steps, self.scale = d_model, warmup_steps, scale

    def __call__(self, step):
        if step < 0:
            raise ValueError(f"NoamSchedule: step must not be negative, got {step}")
        if step < self.warmup_steps:
            return self.scale * self.d_model**-0.5 * step * self.warmup_steps**-1.5
        return self.scale * self.d_model**-0.5 * step**-0.5


class LinearSchedule:
    """Rise in a straight line to `peak` over `warmup_steps` steps, then fall in one to reach 0 just after `n_steps`.

    Falling all the way lets a short training settle: with the inverse square root of `NoamSchedule` the last steps
    are still large. Steps past `n_steps` have rate 0. Raises ValueError for a negative step, and unless 1 <=
    warmup_steps <= n_steps.
    """

    def __init__(self, peak, warmup_steps, n_steps):
        check_positive(self, warmup_steps=warmup_steps, n_steps=n_steps)
        if not peak > 0 or warmup_steps > n_steps:
            raise ValueError(
                "LinearSchedule: expected peak > 0 and warmup_steps <= n_steps, "
                f"got peak {peak!r}, warmup_steps {warmup_steps}, n_steps {n_steps}"
            )
        self.peak, self.warmup_steps, self.n_steps = peak, warmup_steps, n_steps

    def __call__(self, step):
        if step < 0:
            raise ValueError(f"LinearSchedule: step must not be negative, got {step}")
        if step < self.warmup_steps:
            return self.peak * step / self.warmup_steps
        return self.peak * max(0.0, (self.n_steps + 1 - step) / (self.n_steps + 1 - self.warmup_steps))
