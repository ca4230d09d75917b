"""Calls of the file-system lane: statvfs of mounts; read, write and set aside files of the agent.

A call does not return while its disk or file server is dead. Imported by the worker process: this module
imports nothing that is slow to import.
"""

from __future__ import annotations

import os
from binascii import b2a_base64
from errno import errorcode

from nodeguard.local.atomic_write import atomic_write, sync_directory
from nodeguard.worker.call_log import TYPE_CHECKING, CallLog

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

_NAME = "statvfs"
_FIELDS = ("f_frsize", "f_blocks", "f_bfree", "f_bavail", "f_files", "f_ffree", "f_favail", "f_flag")

# Bytes of the agent's largest file; a longer file is not read.
LONGEST = 16 << 20
# Number of unusable files that are retained, the newest as number 1.
ASIDE = 3

# Kinds of files in their mode, see inode(7); the module stat is slow to import.
_KIND, _PLAIN, _DIRECTORY = 0o170000, 0o100000, 0o040000


def ask_all(log: CallLog, skip: frozenset[int], mounts: Sequence[str]) -> None:
    """Call statvfs for each mount point; the scope is its index. skip: scopes to skip."""
    for index, mount in enumerate(mounts):
        if index not in skip:
            log(index, f"{_NAME}({mount})")


def statvfs(_scope: int, call: str, root: str = "") -> Any:
    """Return the fields of `statvfs(PATH)` on this machine, or `{"error": "EIO"}` with the errno's name.

    root: where the machine's root is mounted, in a container.
    """
    try:
        result = os.statvfs(root + call[len(_NAME) + 1 : -1])
    except OSError as error:
        return {"error": errorcode.get(error.errno or 0, "EIO")}
    return {field: getattr(result, field) for field in _FIELDS}


def file_call(call: str, data: bytes = b"") -> Any:
    """Return the result of `read(PATH)`, `write(PATH)` or `set-aside(PATH)`; `{"error": "EIO"}` if it fails.

    data: the content that a write puts into the file. The result of read is base64, of write the number of
    bytes, of set-aside the file's new path.
    """
    name, _, path = call[:-1].partition("(")
    try:
        if name == "write":
            return atomic_write(path, (data,))
        return _set_aside(path) if name == "set-aside" else _read(path)
    except OSError as error:
        return {"error": errorcode.get(error.errno or 0, "EIO")}


def _read(path: str) -> Any:
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        kind = os.fstat(file.fileno()).st_mode & _KIND
        if kind != _PLAIN:
            return {"error": "EISDIR" if kind == _DIRECTORY else "EINVAL"}
        data = file.read(LONGEST + 1)
    return {"error": "EFBIG"} if len(data) > LONGEST else b2a_base64(data, newline=False).decode()


def _set_aside(path: str) -> str:
    """Rename an unusable file. Files set aside earlier are renumbered, and the oldest is deleted."""
    for number in range(ASIDE - 1, 0, -1):
        if os.path.lexists(f"{path}.aside-{number}"):
            os.replace(f"{path}.aside-{number}", f"{path}.aside-{number + 1}")
    os.replace(path, f"{path}.aside-1")
    sync_directory(os.path.dirname(path))
    return f"{path}.aside-1"
