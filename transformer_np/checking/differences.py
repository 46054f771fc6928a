"""Numeric derivatives with an error bar, and the verdict on one derivative.

Along a direction u the outputs are evaluated at x ± h u and x ± h u / 2. With D(h) = (f(x + h u) - f(x - h u)) / 2h,
taken output by output and only then contracted with the upstream gradient dy,

    value = (4 <dy, D(h/2)> - <dy, D(h)>) / 3                       Richardson: the h² error cancels
    bar   = 5 % of the change from D(h) to D(h/2)                   what truncation may have left
          + C Σ |noise| |dy| / h  over the outputs that moved       the worst that rounding may do
    kink  = Σ |f(x + h u) - 2 f(x) + f(x - h u)| |dy| / h           where this does not shrink as h²

A derivative is judged over a ladder of shrinking steps. It is wrong only where two steps agree with each other and both
exclude it. Steps are relative to the size of the array, never zero; the step that was really taken, after rounding,
is used.
Sources: Richardson 1911; Moré and Wild 2011 for measuring the noise of a function by its high differences.
"""

import math
from dataclasses import dataclass

import numpy as np

from ..backend import array_module, to_numpy
from .trees import differentiable

RUNGS = 4
TRUNCATION_SHARE = 0.05
ROUNDING_SAFETY = 6  # 3 for Richardson, 2 for a forward pass that rounds more than once
INDEPENDENT = 4  # rounding errors of many outputs add up like random ones: so many standard deviations at most
FINE_ENOUGH = 1e-5  # a bar below this share of the derivative's size needs no smaller step
OK, WRONG, KINK, UNDECIDED = "ok", "wrong", "kink", "undecided"


@dataclass
class Measured:
    """A numeric derivative at one step: its value, the analytic one along the same step, error bar, kink allowance."""

    step: float
    value: float
    analytic: float
    bar: float
    kink: float
    scale: float
    moved: float  # how much the outputs moved, weighed with |dy|
    tested: bool  # whether they moved more than rounding explains

    @property
    def off(self):
        """How far the analytic value is from the numeric one."""
        return abs(self.analytic - self.value)


@dataclass
class Judged:
    """The verdict on one derivative, with the measurement it rests on."""

    verdict: str
    best: Measured | None
    steps: list

    @property
    def tested(self):
        """Whether the outputs moved at all at some step."""
        return any(m.tested for m in self.steps)


class Differences:
    """Takes numeric derivatives of one trial, contracted with the upstream gradients `dys`."""

    def __init__(self, trial, dys, outputs, rng, epsilon=0.0):
        self.trial, self.dys, self.base, self.rng = trial, dys, outputs, rng
        self.epsilon = max(
            [epsilon_of(y.dtype) for y in outputs if differentiable(y)] + [epsilon_of(trial.dtype), epsilon]
        )
        self.residue = 0.0  # what rounding may leave of a gradient whose terms cancel: see `allow_residue`
        self.analytic_epsilon = 0.0  # the rounding of the gradient that is judged, where it is coarser
        self.noise = [_rounding(y, self.epsilon) for y in outputs]
        self.vanished = False

    # ---- how exact the function is

    def allow_residue(self, gradients):
        """Allow each entry a rounding error relative to the largest gradient of all, each in the units of its array.

        The gradient of a key bias, say, is a sum that cancels to zero. The outputs then do not move by a single bit,
        but backward adds up numbers as large as the other gradients and is left with the rounding of those.
        """
        largest = 0.0
        for w in self.trial.arrays:
            g, x = gradients.get(w.name), self.trial.value(w)
            if g is not None and differentiable(g) and g.shape == x.shape and g.size:
                largest = max(largest, float(array_module(g).abs(g * self.unit(x)).max()))
        self.residue = self.epsilon * largest if math.isfinite(largest) else 0.0

    def allow_rounding_of(self, gradient, dtype):
        """Allow the gradient that is judged next the rounding of its own type, where that is coarser than dtype."""
        coarse = epsilon_of(gradient.dtype)
        self.analytic_epsilon = coarse if coarse > epsilon_of(dtype) else 0.0

    def measure_noise(self):
        """Measure the rounding noise of the outputs from fourth differences along random directions.

        A layer that computes in float32 inside, or cancels large numbers, is noisier than its dtype says. A kink on the
        way looks like noise, so a large reading is taken again elsewhere and the smallest counts.
        """
        if not self.trial.arrays:
            return
        # A few numbers are too small a sample of noise to believe the smallest reading.
        readings, pick = None, min if sum(y.size for y in self.base) >= 8 else max
        for _ in range(3):
            fresh = self._read_noise()
            if fresh is None:
                return
            readings = fresh if readings is None else [pick(pair) for pair in zip(readings, fresh, strict=True)]
            if pick is min and max(readings) <= 50 * self.epsilon:
                break
        for i, relative in enumerate(readings):
            if differentiable(self.base[i]):
                xp = array_module(self.base[i])
                self.noise[i] = xp.maximum(self.noise[i], relative * _rms(self.base[i]))
        self.epsilon = max(self.epsilon, min(2 * max(readings, default=0), 1e-2))

    def _read_noise(self):
        """Return the noise of each output relative to its RMS; None if hardly anything moves at any step."""
        watched = self.trial.arrays
        base = {w.name: self.trial.value(w).copy() for w in watched}
        moves = {w.name: self.direction(w) for w in watched}
        first = step = self.epsilon**0.375  # large against rounding, its fourth power small against it
        while step < 0.3:
            values = []
            try:
                for k in (-2, -1, 1, 2):
                    for w in watched:
                        self.trial.place(w, base[w.name] + (k * step) * moves[w.name])
                    values.append(self.trial.forward())
            finally:
                for w in watched:
                    self.trial.place(w, base[w.name])
            moved = self._share_moved(values[3])
            if moved > 0.5 or (moved > 0 and step == first):
                self.vanished = step > first
                return [_fourth_difference(y, *(v[i] for v in values)) for i, y in enumerate(self.base)]
            step *= 10  # the step vanished in rounding: take a larger one
        return None

    def _share_moved(self, outputs):
        """The share of the output entries that differ from the base point."""
        pairs = [(a, y) for a, y in zip(outputs, self.base, strict=True) if differentiable(y)]
        return sum(int((a != y).sum()) for a, y in pairs) / max(sum(y.size for _, y in pairs), 1)

    @property
    def step(self):
        """The largest relative step: eps^(1/5), the best for a Richardson pair."""
        return min(self.epsilon**0.2, 0.25)

    @property
    def ladder(self):
        """The relative steps to try, from the largest down; close together where rounding leaves little room."""
        ratio = 16 if self.epsilon < 1e-12 else 3
        return [self.step / ratio**k for k in range(RUNGS)]

    # ---- directions

    def direction(self, watched, mask=None):
        """Draw a direction: random signs and sizes from 0.5 to 1.5, in the units of each entry.

        The sizes differ so that no two errors can cancel.
        """
        x = self.trial.value(watched)
        xp = array_module(x)
        u = self.rng.uniform(0.5, 1.5, x.shape) * self.rng.choice((-1.0, 1.0), x.shape)
        u = xp.asarray(u, x.dtype) * self.unit(x)
        return u if mask is None else u * mask

    def unit(self, x):
        """The unit of length of each entry: its distance from the mean or the spread of the array, whichever is larger.

        An array without spread is measured by its size, and one of zeros by 1.
        """
        xp = array_module(x)
        size, mean = _rms(x), float(x.mean()) if x.size else 0.0
        spread = _rms(x - mean)
        if spread > 1e-6 * size:
            return xp.maximum(xp.abs(x - mean), spread)
        return xp.full_like(x, size if size > 0 else 1.0)

    # ---- one measurement

    def measure(self, watched, direction, analytic, relative_step):
        """Measure the derivative along `direction` at one step; None where an output is not finite there."""
        trial = self.trial
        x = trial.value(watched)
        xp = array_module(x)
        base = x.copy()
        far, near = relative_step * direction, (relative_step / 2) * direction
        points = [base + far, base - far, base + near, base - near]
        realised = (points[2] - points[3]) / relative_step  # the direction really taken, after rounding
        try:
            values = []
            for point in points:
                trial.place(watched, point)
                values.append(trial.forward())
        finally:
            trial.place(watched, base)
        totals = [xp.zeros(()), xp.zeros(())]
        if analytic is not None:
            n = int((direction != 0).sum())
            residue = self.residue * relative_step * min(n, INDEPENDENT * math.sqrt(n))
            size, coarse = xp.abs(analytic), self.analytic_epsilon * relative_step
            totals = [
                (analytic * realised).sum(),
                (size * (self.epsilon * xp.abs(base) + coarse * xp.abs(direction))).sum() + residue,
            ]
        parts = [
            self._contract(*ys)
            for ys in zip(self.base, self.dys, self.noise, *values, strict=True)
            if differentiable(ys[0])
        ]
        numbers = to_numpy(
            xp.concatenate([xp.stack([xp.asarray(v, "float64") for v in totals]), xp.stack(parts).sum(0)])
        )
        return self._read(relative_step, [float(v) for v in numbers])

    @staticmethod
    def _contract(y, dy, noise, up, down, near_up, near_down):
        """Contract the differences of one output with its upstream gradient; all sums leave in one small array."""
        xp = array_module(y)
        size = xp.abs(dy)
        far, near = (up - down), (near_up - near_down)  # 2h D(h), h D(h/2)
        bend, near_bend = up + down - 2 * y, near_up + near_down - 2 * y
        change = (near - far / 2) * dy
        moved = (up != down) | (near_up != near_down)
        kinked = xp.abs(bend - 4 * near_bend) > 0.1 * xp.abs(bend) + 10 * noise
        kink = xp.where(kinked, 4 * xp.abs(near_bend) + xp.abs(bend) / 2, 0) / 3
        rounding = xp.where(moved, noise, 0) * size
        noisy = xp.minimum(rounding.sum(), INDEPENDENT * xp.sqrt((rounding * rounding).sum()))
        travel = xp.abs(far) / 2
        signal = xp.where(travel > 4 * noise, travel, 0)
        sums = [
            (far * dy).sum() / 2,
            (near * dy).sum(),
            (change * change).sum(),
            noisy,
            (kink * size).sum(),
            ((near * dy) ** 2).sum(),
            (signal * size).sum(),
        ]
        return xp.stack([xp.asarray(v, "float64") for v in sums])

    def _read(self, h, numbers):
        slope, rounding, far, near, change, noisy, kink, spread, moved = numbers
        if not all(math.isfinite(v) for v in (far, near, change, kink)):
            return None
        truncation = max(abs(near - far), math.sqrt(change)) / h
        bar = TRUNCATION_SHARE * truncation + (ROUNDING_SAFETY * noisy + 4 * rounding) / h
        value = (4 * near - far) / (3 * h)
        scale = max(abs(value), abs(slope), math.sqrt(spread) / h)
        return Measured(h, value, slope, bar, kink / h, scale, moved / h, moved > 0)

    # ---- the verdict

    def judge(self, watched, direction, analytic):
        """Judge the analytic gradient along one direction, going down the ladder of steps as far as needed."""
        steps = []
        for step in self.ladder:
            measured = self.measure(watched, direction, analytic, step)
            if measured is None:
                continue
            steps.append(measured)
            fine = measured.bar <= FINE_ENOUGH * measured.scale or not measured.tested
            if measured.kink == 0 and measured.off <= measured.bar and fine:
                return Judged(OK, measured, steps)
            if len(steps) == 2 and _both_exclude(*steps) and self.epsilon < 1e-12:
                return Judged(WRONG, min(steps, key=_uncertainty), steps)
        if not steps:
            return Judged(KINK, None, steps)
        return self._weigh(steps)

    def _weigh(self, steps):
        ranked = sorted(steps, key=_uncertainty)
        best = ranked[0]
        if best.off <= best.bar:
            return Judged(OK, best, steps)
        if best.off <= best.bar + best.kink:
            return Judged(KINK, best, steps)
        for other in ranked[1:]:
            if _both_exclude(best, other):
                return Judged(WRONG, best, steps)
        kinked = any(m.kink > m.bar for m in steps)
        return Judged(KINK if kinked else UNDECIDED, best, steps)


def _uncertainty(measured):
    return measured.bar + measured.kink


def _both_exclude(a, b):
    """Whether two steps agree with each other and neither lets the analytic value stand, with a wide margin."""
    if any(m.off <= 2 * _uncertainty(m) for m in (a, b)):
        return False
    apart = abs((a.value - a.analytic) - (b.value - b.analytic))
    return apart <= max(_uncertainty(a) + _uncertainty(b), 0.1 * min(a.off, b.off))


def epsilon_of(dtype):
    """The relative rounding error of a float dtype; bfloat16 keeps 8 bits."""
    return float(np.finfo(dtype).eps) if np.dtype(dtype).kind == "f" else 2.0**-7


def _rms(y):
    return math.sqrt(float((y * y).mean())) if y.size else 0.0


def _fourth_difference(y, far_down, down, up, far_up):
    """Return the noise of an output relative to its RMS, from five equally spaced values of it.

    The median over the entries that moved: a kink makes a few entries large, noise makes all of them so.
    """
    if not differentiable(y) or not y.size:
        return 0.0
    fourth = to_numpy(array_module(y).abs(far_down - 4 * down + 6 * y - 4 * up + far_up))
    moved = np.sort(fourth[to_numpy(far_up != y) & np.isfinite(fourth)])
    if not moved.size:
        return 0.0
    noise = 1.5 * float(moved[(moved.size - 1) // 2]) / math.sqrt(70)  # 70 = 1 + 16 + 36 + 16 + 1
    return noise / (_rms(y) or 1.0)


def _rounding(y, epsilon):
    """The rounding error of one forward pass, entry by entry: 2 eps times the entry, or the output's RMS if larger."""
    if not differentiable(y):
        return y
    xp = array_module(y)
    return 2 * epsilon * xp.maximum(xp.abs(y), _rms(y))
