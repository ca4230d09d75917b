"""A policy file that changes while the aggregator runs: when to read it again, and what then counts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from nodeguard.aggregator.policy.file import read
from nodeguard.aggregator.policy.places import beside
from nodeguard.catalog.located import CatalogueError
from nodeguard.model.finding import Health
from nodeguard.model.policy import Policy

# Seconds between two looks at a file.
_EVERY = 1.0


class Adopted(NamedTuple):
    """The policy that counts; why the file does not, empty where it does; what is doubtful about it."""

    policy: Policy
    error: str = ""
    doubts: tuple[CatalogueError, ...] = ()


def adopted(current: Policy, file: Path, checks: Mapping[str, Health], now: float) -> Adopted:
    """What counts once a file has been read again: what it says, or, where it is wrong, the last good policy.

    A start has no last good one, and refuses a wrong file: see file.read, also for checks and now.
    """
    try:
        policy, doubts = read(file, checks, now)
    except CatalogueError as error:
        return Adopted(current, f"{error}; the policy stays as it was before this change")
    return Adopted(policy, "", doubts)


class Watched:
    """Tells when a policy file or a table that it names has another content, by what the file system says.

    Made before the file is read, it misses no change. A change counts when it has lasted from one look to the
    next, so that no half of a file is read that an editor is still writing. A mounted ConfigMap changes at
    once: its file is a link through `..data`, which then leads elsewhere.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._files = (file, *beside(file))
        self._read = self._seen = _identity(self._files)
        self._next = 0.0

    def changed(self, now: float) -> bool:
        """Whether to read the file again. now: seconds of a clock that never jumps."""
        if now < self._next:
            return False
        self._next = now + _EVERY
        seen = _identity(self._files)
        lasting, self._seen = seen == self._seen, seen
        if not lasting or seen == self._read:
            return False
        self._files = (self._file, *beside(self._file))
        self._read = self._seen = _identity(self._files)
        return True


def _identity(files: Iterable[Path]) -> tuple[tuple[int, ...], ...]:
    """What changes with the content of files; of one that is not there, nothing."""
    return tuple(_told(file) for file in files)


def _told(file: Path) -> tuple[int, ...]:
    try:
        told = os.stat(file)
    except (OSError, ValueError):
        return ()
    return (told.st_dev, told.st_ino, told.st_size, told.st_mtime_ns, told.st_ctime_ns)
