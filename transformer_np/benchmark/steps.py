"""Whole training steps, measured: rows of plain values, ready to print, draw, or write as JSON."""

import importlib.util
import math
import statistics
import time
from contextlib import ExitStack

from .contenders import numpy_step, torch_step
from .machine import gemm_rate
from .sides import Side, alternate
from .sizes import AXES, GROWTH, TINY


def torch_installed():
    """Say whether there is a PyTorch to stand beside."""
    return importlib.util.find_spec("torch") is not None


def step_row(name, size, threads, repeats, with_torch=True):
    """Measure one size and return its row.

    Times are medians in seconds, memory is in bytes above the loaded libraries, `share` is what part of `gemm_rate`
    (operations a second, measured in turn with the rest: machines have fast and slow minutes) the matrix products of
    forward and backward alone amount to.
    """

    def product():
        """The seconds of one operation; afterwards BLAS's threads wait for more, busily, in the way of who is next."""
        seconds = 1 / gemm_rate(threads, repeats=1)
        time.sleep(0.5)
        return seconds

    kinds = ("step", "forward_backward")
    with ExitStack() as stack:
        ours = stack.enter_context(Side(numpy_step, size, threads, warm_up=(TINY, threads)))
        sides = [ours]
        if with_torch:
            sides.append(stack.enter_context(Side(torch_step, size, threads, warm_up=(TINY, threads))))
        calls = [lambda side=side, kind=kind: side.run(kind) for kind in kinds for side in sides]
        *medians, operation = (statistics.median(seconds) for seconds in alternate([*calls, product], repeats))
        memory = [side.peak_memory() for side in sides]
    step, forward_backward = medians[: len(sides)], medians[len(sides) :]
    row = {"name": name, "size": size.as_dict(), "threads": threads, "repeats": repeats, "gemm_rate": 1 / operation}
    row |= {"step": step[0], "forward_backward": forward_backward[0], "peak_memory": memory[0]}
    row["share"] = size.flops() * operation / forward_backward[0]
    if with_torch:
        row |= {"torch_step": step[1], "torch_forward_backward": forward_backward[1], "torch_peak_memory": memory[1]}
        row["ratio"] = step[0] / step[1]
        row["memory_ratio"] = None if None in memory else memory[0] / memory[1]
    return row


def growth(threads, repeats, with_torch=True, base=GROWTH, axes=AXES, factors=(1, 2, 4, 8), progress=None):
    """Measure the base size with one thing at a time made larger; return {axis: rows}, a row for each factor.

    `progress(text)` is told what is measured next. The base itself is measured once and stands in every axis.
    """
    first, table = None, {}
    for axis in axes:
        rows = []
        for factor in factors:
            size = base.grown(axis, factor)
            if size == base and first is not None:
                row = first
            else:
                if progress is not None:
                    progress(f"{axis} x {factor}: {size}")
                row = step_row(str(size), size, threads, repeats, with_torch)
                first = row if size == base else first
            rows.append({**row, "factor": factor})
        table[axis] = rows
    return table


def geometric_mean(values):
    """Return the n-th root of the product."""
    return math.exp(statistics.fmean(math.log(v) for v in values))
