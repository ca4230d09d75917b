"""Atomic replacement of a file: a crash or a loss of power leaves the old file or the new one, never a part.

Imported by the worker process: this module imports nothing that is slow to import.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


def atomic_write(path: str, pieces: Iterable[bytes], mode: int = 0o600) -> int:
    """Replace a file as a whole and return its size in bytes. Raises OSError.

    The directory is made (mode 0700) if only the directory is missing. The unfinished file is `PATH.new`: one
    name, so that killed writers leave at most one behind.
    """
    directory, unfinished = os.path.dirname(path), f"{path}.new"
    if directory and not os.path.lexists(directory):
        os.mkdir(directory, 0o700)
    _remove(unfinished)  # of any file type and any permissions
    size = 0
    try:
        with open(os.open(unfinished, _NEW, mode), "wb") as file:
            for piece in pieces:
                size += file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    except OSError as error:
        _remove(unfinished)  # a full disk has no room for an unfinished file
        if error.filename2 is not None:  # of os.replace: what is in the way is at `path`
            error.filename, error.filename2 = path, None
        raise
    sync_directory(directory or ".")
    return size


def sync_directory(directory: str) -> None:
    """Make the names in a directory survive a loss of power."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return
