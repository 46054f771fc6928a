"""The machine: what it is, how fast it multiplies matrices, and how much memory this process has taken."""

import os
import platform
import statistics
import sys
import time
from importlib import metadata

import numpy as np


def describe_machine():
    """Return {name: value}: processor, cores, system, and the versions of what computes."""
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    packages = metadata.packages_distributions()  # CuPy's is called cupy-cuda12x, or alike
    versions = {name: metadata.version(packages[name][0]) for name in ("torch", "cupy") if name in packages}
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "blas": f"{blas.get('name')} {blas.get('version')}",
        **versions,
        "date": time.strftime("%Y-%m-%d"),
    }


def _processor():
    """The processor's name: in Linux's list, else as Python knows it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    except OSError:  # another system
        names = []
    return names[0] if names else platform.processor() or platform.machine()


def gemm_rate(threads, size=1024, repeats=5):
    """Return how many floating-point operations a second NumPy's float32 matrix product does, at its best shape.

    The shapes are those of a Transformer's products, (4 size, size) (size, size) and alike; each is timed `repeats`
    times, and its median counts.
    """
    from threadpoolctl import threadpool_limits

    rng, rates = np.random.default_rng(0), []
    with threadpool_limits(threads, user_api="blas"):
        for n, inner, m in ((2 * size, size, size), (4 * size, size // 2, 2 * size), (size, 2 * size, size // 2)):
            a, b = (rng.standard_normal(shape).astype("float32") for shape in ((n, inner), (inner, m)))
            out = np.empty((n, m), "float32")
            seconds = []
            for _ in range(repeats + 1):
                start = time.perf_counter()
                np.matmul(a, b, out=out)
                seconds.append(time.perf_counter() - start)
            rates.append(2 * n * inner * m / statistics.median(seconds[1:]))
    return max(rates)


def memory_in_use():
    """Return (bytes this process holds now, the most it ever held); (None, None) where the system does not tell."""
    if sys.platform == "linux":
        with open("/proc/self/status", encoding="utf-8") as file:
            fields = dict(line.split(":", 1) for line in file)
        # VmHWM belongs to this program alone; getrusage would also count what its parent held when it was started.
        return tuple(int(fields[name].split()[0]) * 1024 for name in ("VmRSS", "VmHWM"))
    if sys.platform == "darwin":
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak, peak
    return None, None
