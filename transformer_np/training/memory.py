"""Keeping freed memory at hand: a training step frees and asks for the same large arrays again and again."""

import ctypes
import platform

# From malloc.h of the GNU C library.
M_TRIM_THRESHOLD, M_MMAP_MAX, M_ARENA_MAX = -1, -4, -8


def keep_freed_memory():
    """Ask the C library to keep what NumPy frees, for the rest of the process; return whether it could.

    By default it hands large arrays back to the system, which hands out zeroed pages for the next ones: a training step
    on the CPU spends up to a tenth of its time so. The process then holds its peak until it ends, which is why nothing
    in this package asks for this on its own: a program that trains does, before it starts threads.
    Works with the GNU C library (Linux); elsewhere it changes nothing and returns False.
    """
    if platform.system() != "Linux" or platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    settings = {M_MMAP_MAX: 0, M_TRIM_THRESHOLD: -1, M_ARENA_MAX: 1}  # no maps of their own, no trimming, one heap
    return all(mallopt(name, value) == 1 for name, value in settings.items())
