"""Files that are whole or not there: a full disk or an interruption leaves an older file as it was."""

import os
import pathlib


def write_atomically(path, content):
    """Write bytes to a temporary file beside `path`, then rename it over `path`. Raises OSError where that fails."""
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
