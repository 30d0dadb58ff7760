"""Files that are there whole or not at all."""

import os
import tempfile
from pathlib import Path

from harness.errors import FixcostError


def write_atomically(path: Path, data: bytes) -> None:
    """Write `data` to `path` so that a reader, or a crash, never meets half of it.

    Raises:
        FixcostError: the disk is full or the folder cannot be written; `path` is untouched.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            Path(temporary).chmod(0o644)
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise FixcostError(f"Cannot write {path}: {error.strerror or error}.") from error
