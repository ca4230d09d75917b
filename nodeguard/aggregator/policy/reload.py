"""A policy file that changes while the aggregator runs: when to read it again, and what then counts."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from nodeguard.aggregator.policy.node_locations import referenced_tables
from nodeguard.aggregator.policy.policy_file import read_policy
from nodeguard.config.yaml_document import ConfigError
from nodeguard.fleet.planner import Planner
from nodeguard.model.finding import Health
from nodeguard.model.instant import Instant
from nodeguard.model.policy import Policy

# Seconds between two looks at a file.
_EVERY = 1.0


class ReloadResult(NamedTuple):
    """The policy that counts; why the file does not, empty where it does; what is doubtful about it."""

    policy: Policy
    error: str = ""
    warnings: tuple[ConfigError, ...] = ()


def reload_policy(current: Policy, file: Path, checks: Mapping[str, Health], now: float) -> ReloadResult:
    """What counts once a file has been read again: what it says, or, where it is wrong, the last good policy.

    A start has no last good one, and refuses a wrong file: see file.read, also for checks and now.
    """
    try:
        policy, doubts = read_policy(file, checks, now)
    except ConfigError as error:
        return ReloadResult(current, f"{error}; the policy stays as it was before this change")
    return ReloadResult(policy, "", doubts)


class FileWatcher:
    """Tells when a policy file or a table that it names has another content, by what the file system says.

    Made before the file is read, it misses no change. A change counts when it has lasted from one look to the
    next, so that no half of a file is read that an editor is still writing. A mounted ConfigMap changes at
    once: its file is a link through `..data`, which then leads elsewhere.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._files = (file, *referenced_tables(file))
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
        self._files = (self._file, *referenced_tables(self._file))
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


class PolicyReloader:
    """A policy file that a planner follows. Made before the file is first read.

    checks: health by id of those that are known. tell: takes sentences for the log. refused: is told why a
    file is not adopted, once. error: why the file as it is now is not; empty where it is. asked: to be set
    where somebody asks for it to be read again.
    """

    def __init__(
        self,
        file: Path,
        checks: Mapping[str, Health],
        tell: Callable[[str], None],
        refused: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.file = file
        self.error = ""
        self.rejected_count = 0
        self.is_requested = False
        self.on_rejected = refused
        self._checks = checks
        self._tell = tell
        self._watched = FileWatcher(file)

    def __call__(self, planner: Planner, now: Instant) -> None:
        """Read the file again, if it has changed, and have the planner follow it, if it is right."""
        changed = self._watched.changed(now.mono)
        if not (changed or self.is_requested):
            return
        self.is_requested = False
        policy, error, doubts = reload_policy(planner.policy, self.file, self._checks, now.wall)
        if error and error != self.error:
            self.rejected_count += 1
            self._tell(error)
            self.on_rejected(error)
        self.error = error
        if error:
            return
        for doubt in doubts:
            self._tell(f"{doubt}")
        if policy != planner.policy:
            planner.set_policy(policy)
            self._tell(f"{self.file}: adopted")
