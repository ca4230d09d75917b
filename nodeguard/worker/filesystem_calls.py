"""What is asked of a mounted file system: statvfs, the call that a dead disk or file server never answers."""

from __future__ import annotations

import os
from errno import errorcode

from nodeguard.worker.call_log import TYPE_CHECKING, CallLog

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

_NAME = "statvfs"
_FIELDS = ("f_frsize", "f_blocks", "f_bfree", "f_bavail", "f_files", "f_ffree", "f_favail", "f_flag")


def ask_all(ask: CallLog, resting: frozenset[int], mounts: Sequence[str]) -> None:
    """One round: statvfs of each mount point; the scope is its index. resting: scopes to leave alone."""
    for index, mount in enumerate(mounts):
        if index not in resting:
            ask(index, f"{_NAME}({mount})")


def statvfs(_scope: int, call: str, root: str = "") -> Any:
    """Answer `statvfs(PATH)` on this machine: its fields, or `{"error": "EIO"}` by the errno's name.

    root: where the machine's root is mounted, in a container.
    """
    try:
        result = os.statvfs(root + call[len(_NAME) + 1 : -1])
    except OSError as failed:
        return {"error": errorcode.get(failed.errno or 0, "EIO")}
    return {field: getattr(result, field) for field in _FIELDS}
