"""Keeping freed memory: it must change nothing but where memory comes from."""

import platform
import subprocess
import sys

CODE = """
import resource
import numpy as np
from transformer_np.training import keep_freed_memory
kept = keep_freed_memory()
def faults():
    for _ in range(20):
        np.ones(5_000_000)  # 40 MB, more than the C library ever keeps by itself
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
first = faults()
print(kept, faults() - first)
"""


def test_large_arrays_are_not_faulted_in_again():
    out = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True).stdout.split()
    kept = platform.system() == "Linux" and platform.libc_ver()[0] == "glibc"
    assert out[0] == str(kept)
    if kept:  # 20 arrays of 40 MB are 200,000 pages of 4 kB, or 400 of 2 MB
        assert int(out[1]) < 100
