"""Calls to a mounted file system: statvfs, which does not return if the disk or file server is dead."""

from __future__ import annotations

import os
from errno import errorcode

from nodeguard.worker.call_log import TYPE_CHECKING, CallLog

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

_NAME = "statvfs"
_FIELDS = ("f_frsize", "f_blocks", "f_bfree", "f_bavail", "f_files", "f_ffree", "f_favail", "f_flag")


def ask_all(log: CallLog, resting: frozenset[int], mounts: Sequence[str]) -> None:
    """Call statvfs for each mount point; the scope is its index. resting: scopes to skip."""
    for index, mount in enumerate(mounts):
        if index not in resting:
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
