"""Reading a binary file that may be cut short or lie about its sizes: every read is checked before memory is taken."""

import math
import struct
from pathlib import Path

import numpy as np


class BinaryReader:
    """Takes numbers, strings and arrays from a file, from front to back, little-endian.

    Every method raises ValueError, naming the file, the offset and what was to be read, where the bytes do not suffice.
    """

    def __init__(self, path):
        self.path, self.offset = Path(path), 0
        if not self.path.is_file():
            raise FileNotFoundError(f"no file at {self.path}")
        self.content = self.path.read_bytes()

    def remaining(self):
        """Say how many bytes are left."""
        return len(self.content) - self.offset

    def error(self, message):
        """Return a ValueError that says in which file, and where."""
        return ValueError(f"{self.path}: {message} (at byte {self.offset})")

    def raw(self, n, what):
        """Take n bytes."""
        if n < 0 or n > self.remaining():
            raise self.error(f"{what} needs {n} bytes and {self.remaining()} are left: the file is cut short")
        self.offset += n
        return self.content[self.offset - n : self.offset]

    def number(self, kind, what):
        """Take one number; `kind` is a letter of the struct module, such as "I" for an unsigned one of 32 bits."""
        return struct.unpack(f"<{kind}", self.raw(struct.calcsize(f"<{kind}"), what))[0]

    def text(self, n, what):
        """Take n bytes of UTF-8."""
        try:
            return self.raw(n, what).decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.error(f"{what} is no UTF-8 text") from error

    def array(self, dtype, shape, what):
        """Take an array, as a read-only view of the file's bytes."""
        dtype = np.dtype(dtype).newbyteorder("<")
        n = math.prod(shape)  # Python's integers: a product that overflows would pass the check
        return np.frombuffer(self.raw(n * dtype.itemsize, what), dtype, n).reshape(shape)

    def finish(self):
        """Raise ValueError where bytes are left over."""
        if self.remaining():
            raise self.error(f"{self.remaining()} bytes are left over: the file is damaged or of another kind")
