"""Reload of the policy file: watches the file and its tables, and adopts a valid change."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from nodeguard.aggregator.policy.node_locations import referenced_tables
from nodeguard.aggregator.policy.policy_file import LoadedPolicy, read_policy
from nodeguard.config.errors import ConfigError
from nodeguard.fleet.planner import Planner
from nodeguard.model.diagnosis import FaultClass
from nodeguard.model.finding import Health
from nodeguard.model.instant import Instant

logger = logging.getLogger(__name__)

# Interval in seconds between two checks of a file.
_INTERVAL = 1.0


class PolicyReloader:
    """Keeps a planner up to date with a policy file. Create it before the file is first read.

    checks: health of each check by id. fault_classes: of the catalogue. has_pods: False without Kubernetes.
    error: of the file as it is now, empty if it is valid: an invalid file changes nothing. rejected_count:
    invalid files since the start. is_requested: set it to read the file at the next call.
    """

    def __init__(
        self,
        file: Path,
        checks: Mapping[str, Health],
        fault_classes: tuple[FaultClass, ...],
        *,
        has_pods: bool = True,
    ) -> None:
        self.file = file
        self.error = ""
        self.rejected_count = 0
        self.is_requested = False
        self._checks = checks
        self._fault_classes = fault_classes
        self._has_pods = has_pods
        self._watcher = FileWatcher(file)

    def __call__(self, planner: Planner, now: Instant) -> str:
        """Read the file again if it has changed, and let the planner adopt it if it is valid.

        Returns the error of a file that has become invalid, once; else an empty text.
        """
        changed = self._watcher.changed(now.mono)
        if not (changed or self.is_requested):
            return ""
        self.is_requested = False
        try:
            policy, warnings = self.read(now.wall)
        except ConfigError as error:
            return self._reject(f"{error}; the previous policy stays in use")
        self.error = ""
        log_policy_warnings(warnings)
        if policy != planner.policy:
            planner.set_policy(policy)
            logger.info("the new policy file is in use", extra={"file": str(self.file)})
        return ""

    def read(self, now: float) -> LoadedPolicy:
        """Return the policy of the file. now: seconds since the epoch. Raises ConfigError."""
        return read_policy(self.file, self._checks, now, self._fault_classes, has_pods=self._has_pods)

    def _reject(self, error: str) -> str:
        """Record an invalid file. Returns its error if it is another one than before."""
        logger.error("rejected the policy file", extra={"error": error})
        if error == self.error:
            return ""
        self.rejected_count += 1
        self.error = error
        return error


def log_policy_warnings(warnings: Iterable[ConfigError]) -> None:
    """Log the warnings for a valid policy."""
    for warning in warnings:
        logger.warning(
            "the policy file is valid but unsafe or without effect", extra={"problem": str(warning)}
        )


class FileWatcher:
    """Detects that the content of a policy file or of its tables has changed, by the metadata of the files.

    Create it before the file is read: then it misses no change. A change counts if the metadata are the same
    at the next look, so that a half-written file is not read. A mounted ConfigMap changes at once: its file
    is a link through `..data`, which then has another target.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._files = (file, *referenced_tables(file))
        self._read = self._seen = _metadata(self._files)
        self._next = 0.0

    def changed(self, now: float) -> bool:
        """Return whether to read the file again. now: seconds of a monotonic clock."""
        if now < self._next:
            return False
        self._next = now + _INTERVAL
        seen = _metadata(self._files)
        is_stable, self._seen = seen == self._seen, seen
        if not is_stable or seen == self._read:
            return False
        self._files = (self._file, *referenced_tables(self._file))
        self._read = self._seen = _metadata(self._files)
        return True


def _metadata(files: Iterable[Path]) -> tuple[tuple[int, ...], ...]:
    """Return the metadata of each file, which change with its content; empty for a missing file."""
    return tuple(_file_metadata(file) for file in files)


def _file_metadata(file: Path) -> tuple[int, ...]:
    try:
        status = os.stat(file)
    except (OSError, ValueError):
        return ()
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
