"""Reading of files that a configuration names: a pipe, directory or device is an error, at once."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from stat import S_ISDIR, S_ISFIFO, S_ISREG

# Paths of what is open already, such as the pipe of `<(…)` in a shell.
_OPEN = ("/dev/fd/", "/dev/stdin", "/proc/")


class EmptyPipeError(OSError):
    """A pipe has no data: nothing writes to it, or what writes has failed."""


def read_regular_file(path: str | Path, limit: int, *, may_be_pipe: bool = False) -> bytes:
    """Return at most `limit` bytes of a file, links followed.

    may_be_pipe: whether a pipe that is open already is read, too, to its end. Raises OSError with the reason,
    for a named pipe, a pipe without data, a directory or a device too, and for a name with a null character.
    """
    if "\0" in str(path):
        raise OSError(errno.EINVAL, "its name has a null character", str(path))
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        mode = os.fstat(descriptor).st_mode
        if S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        check_no_named_pipe(path, mode)
        if not (S_ISREG(mode) or (may_be_pipe and S_ISFIFO(mode))):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        os.set_blocking(descriptor, True)
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            data = file.read(limit)
        if not data and S_ISFIFO(mode):
            raise EmptyPipeError(errno.EINVAL, "a pipe without a writer, or without data", str(path))
        return data
    finally:
        os.close(descriptor)


def check_no_named_pipe(path: str | Path, mode: int) -> None:
    """Raise OSError for a named pipe: a read would wait for its writer. mode: of the file."""
    if S_ISFIFO(mode) and not str(path).startswith(_OPEN):
        raise OSError(errno.EINVAL, "a named pipe, not a regular file", str(path))
