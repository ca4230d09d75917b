"""The spool's entries as files of one directory, each written whole or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat

from nodeguard.agent.spool import CorruptError

# An entry is its checksum, a line break, and what it holds. Larger files are not ours.
_SUM = 32
_LARGEST = 1024 * 1024
_NAME = re.compile(r"([0-9]{12})\Z")

# Files kept for a person to look at; the oldest give way.
_ASIDE = 4


class DiskStore:
    """Entries in a directory of their own, which is made where it is missing, for this user alone."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def list(self) -> dict[int, int]:
        """Size of each entry by its number. What a kill left half written is cleared away."""
        self._make()
        found = {}
        for name in os.listdir(self._directory):
            path = self._path(name)
            if name.endswith(".new"):
                os.unlink(path)
            elif _NAME.match(name) and stat.S_ISREG((known := os.lstat(path)).st_mode):
                found[int(name)] = max(0, known.st_size - _SUM - 1)
        return found

    def write(self, number: int, data: bytes) -> None:
        """Keep an entry; it outlives a power cut once this returns. Raises OSError."""
        self._make()
        path = self._path(_name(number))
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
            with os.fdopen(os.open(f"{path}.new", flags, 0o600), "wb") as file:
                file.write(_checksum(data) + b"\n" + data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(f"{path}.new", path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(f"{path}.new")
            raise
        self._sync()

    def read(self, number: int) -> bytes:
        """An entry. Raises OSError, and CorruptError after it was set aside."""
        path = self._path(_name(number))
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW), "rb") as file:
            whole = file.read(_LARGEST + 1)
        data = whole[_SUM + 1 :]
        if len(whole) <= _LARGEST and whole[: _SUM + 1] == _checksum(data) + b"\n":
            return data
        raise CorruptError(f"{self.set_aside(number)} is not what was written there: check the disk")

    def remove(self, number: int) -> None:
        """Forget an entry. Raises OSError where it is still there."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path(_name(number)))

    def set_aside(self, number: int) -> str:
        """Keep an entry for a person. Returns its new path; raises OSError."""
        path = self._path(_name(number))
        os.replace(path, f"{path}.aside")
        aside = sorted(name for name in os.listdir(self._directory) if name.endswith(".aside"))
        for name in aside[:-_ASIDE]:
            os.unlink(self._path(name))
        return f"{path}.aside"

    def _make(self) -> None:
        os.makedirs(self._directory, mode=0o700, exist_ok=True)

    def _path(self, name: str) -> str:
        return os.path.join(self._directory, name)

    def _sync(self) -> None:
        directory = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def _name(number: int) -> str:
    return f"{number:012d}"


def _checksum(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_SUM // 2).hexdigest().encode()
