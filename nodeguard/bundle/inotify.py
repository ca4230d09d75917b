"""Inotify: changes in directories of this machine. Source: Linux inotify(7)."""

from __future__ import annotations

import os
import struct
from contextlib import suppress

from msgspec import Struct

# Written, made, renamed, removed, or other permissions; include/uapi/linux/inotify.h.
_MODIFY, _ATTRIB, _MOVED, _CREATE, _DELETE = 0x2, 0x4, 0x40 | 0x80, 0x100, 0x200
_CHANGES = _MODIFY | _ATTRIB | _MOVED | _CREATE | _DELETE
_ONLY_DIRECTORIES, _NO_LINK = 0x0100_0000, 0x0200_0000

_HEAD = struct.Struct("iIII")
_ROOM = 64 << 10


class DirectoryChange(Struct, frozen=True):
    """A change in a directory.

    watch: of the directory, -1 if the kernel dropped changes. name: in that directory, empty for the
    directory itself.
    """

    watch: int
    name: str


class Inotify:
    """Watches single directories, without their subdirectories. Raises OSError."""

    def __init__(self) -> None:
        import ctypes  # noqa: PLC0415 - only for recordings that are watched

        self._library = ctypes.CDLL(None, use_errno=True)
        self._errno = ctypes.get_errno
        self._descriptor = self._checked(self._library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC), "inotify")

    def fileno(self) -> int:
        """Return a descriptor that is readable when there are changes to take."""
        return self._descriptor

    def watch(self, directory: str) -> int:
        """Return the watch of a directory; the same one if it has a watch already."""
        mask = _CHANGES | _ONLY_DIRECTORIES | _NO_LINK
        watch = self._library.inotify_add_watch(self._descriptor, os.fsencode(directory), mask)
        return self._checked(watch, directory)

    def take(self) -> list[DirectoryChange]:
        """Return the changes since the last call, oldest first, without waiting."""
        changes: list[DirectoryChange] = []
        with suppress(BlockingIOError):
            data = os.read(self._descriptor, _ROOM)
            at = 0
            while at < len(data):
                watch, _, _, length = _HEAD.unpack_from(data, at)
                at += _HEAD.size + length
                changes.append(DirectoryChange(watch, os.fsdecode(data[at - length : at].rstrip(b"\0"))))
        return changes

    def _checked(self, result: int, subject: str) -> int:
        if result < 0:
            raise OSError(self._errno(), os.strerror(self._errno()), subject)
        return result

    def close(self) -> None:
        """End all watches."""
        os.close(self._descriptor)
