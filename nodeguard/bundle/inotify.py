"""Changes below directories of this machine, as the kernel tells them. Source: Linux inotify(7)."""

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
    """Something in a directory changed. watch: the directory's, -1 where the kernel had too many to tell;
    name: in that directory, empty for the directory itself.
    """

    watch: int
    name: str


class Inotify:
    """Watches directories, one by one, not what is below them. Raises OSError where the kernel refuses."""

    def __init__(self) -> None:
        import ctypes  # noqa: PLC0415 - for recordings that are watched alone

        self._library = ctypes.CDLL(None, use_errno=True)
        self._errno = ctypes.get_errno
        self._descriptor = self._checked(self._library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC), "inotify")

    def fileno(self) -> int:
        """Readable when there are changes that were not taken."""
        return self._descriptor

    def watch(self, directory: str) -> int:
        """The directory's watch; the same one where it had one already."""
        mask = _CHANGES | _ONLY_DIRECTORIES | _NO_LINK
        found = self._library.inotify_add_watch(self._descriptor, os.fsencode(directory), mask)
        return self._checked(found, directory)

    def take(self) -> list[DirectoryChange]:
        """Changes since the last time, oldest first; without waiting."""
        changes: list[DirectoryChange] = []
        with suppress(BlockingIOError):
            data = os.read(self._descriptor, _ROOM)
            at = 0
            while at < len(data):
                watch, _, _, length = _HEAD.unpack_from(data, at)
                at += _HEAD.size + length
                changes.append(DirectoryChange(watch, os.fsdecode(data[at - length : at].rstrip(b"\0"))))
        return changes

    def _checked(self, result: int, what: str) -> int:
        if result < 0:
            raise OSError(self._errno(), os.strerror(self._errno()), what)
        return result

    def close(self) -> None:
        """Watch nothing any more."""
        os.close(self._descriptor)
