"""What is asked of the disk that the agent keeps its own files on, which may be the one that never answers.

Imported by the worker process: nothing here is slow to import.
"""

from __future__ import annotations

import os
from binascii import b2a_base64
from errno import errorcode

from nodeguard.worker.call_log import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

# No file of ours is longer; a longer one is not read.
LONGEST = 16 << 20
# So many files that were of no use are kept, the newest as number 1.
ASIDE = 3

# Kinds of files in their mode, see inode(7); the module stat is slow to import.
_KIND, _PLAIN, _DIRECTORY = 0o170000, 0o100000, 0o040000

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


def execute(call: str, data: bytes = b"") -> Any:
    """Answer `read(PATH)`, `write(PATH)` or `set-aside(PATH)`, or `{"error": "EIO"}` by the errno's name.

    data: what a write is to leave in the file. A reading gives base64, a write the number of bytes, a setting
    aside the file's new path.
    """
    name, _, path = call[:-1].partition("(")
    try:
        if name == "write":
            return _write(path, data)
        return _set_aside(path) if name == "set-aside" else _read(path)
    except OSError as failed:
        return {"error": errorcode.get(failed.errno or 0, "EIO")}


def _read(path: str) -> Any:
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        kind = os.fstat(file.fileno()).st_mode & _KIND
        if kind != _PLAIN:
            return {"error": "EISDIR" if kind == _DIRECTORY else "EINVAL"}
        data = file.read(LONGEST + 1)
    return {"error": "EFBIG"} if len(data) > LONGEST else b2a_base64(data, newline=False).decode()


def _write(path: str, data: bytes) -> int:
    """Replace a file as a whole: whoever is killed or loses power meanwhile leaves the old one or the new.

    Its directory is made where only that is missing. One name for what is not finished, so that those who are
    killed leave no more than one behind.
    """
    directory, unfinished = os.path.dirname(path), f"{path}.new"
    if not os.path.lexists(directory):
        os.mkdir(directory, 0o700)
    _remove(unfinished)  # whatever it is and whoever may read it
    try:
        with open(os.open(unfinished, _NEW, 0o600), "wb", buffering=0) as file:
            left = memoryview(data)
            while left:
                left = left[file.write(left) :]
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    except OSError:
        _remove(unfinished)  # a full disk has no room for what nobody can use
        raise
    _sync(directory)
    return len(data)


def _set_aside(path: str) -> str:
    """Rename a file that is of no use; those set aside before it move on, the last of them goes."""
    for at in range(ASIDE - 1, 0, -1):
        if os.path.lexists(f"{path}.aside-{at}"):
            os.replace(f"{path}.aside-{at}", f"{path}.aside-{at + 1}")
    os.replace(path, f"{path}.aside-1")
    _sync(os.path.dirname(path))
    return f"{path}.aside-1"


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return


def _sync(directory: str) -> None:
    """Have the names in a directory outlive a loss of power."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
