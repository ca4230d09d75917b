"""The policy file, read again when it changes; a wrong one is told of and left."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from nodeguard.aggregator.policy.reload import Watched, adopted
from nodeguard.fleet.planner import Planner
from nodeguard.model.finding import Health
from nodeguard.model.instant import Instant


class PolicyFile:
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
        self.refusals = 0
        self.asked = False
        self.refused = refused
        self._checks = checks
        self._tell = tell
        self._watched = Watched(file)

    def __call__(self, planner: Planner, now: Instant) -> None:
        """Read the file again, if it has changed, and have the planner follow it, if it is right."""
        changed = self._watched.changed(now.mono)
        if not (changed or self.asked):
            return
        self.asked = False
        policy, error, doubts = adopted(planner.policy, self.file, self._checks, now.wall)
        if error and error != self.error:
            self.refusals += 1
            self._tell(error)
            self.refused(error)
        self.error = error
        if error:
            return
        for doubt in doubts:
            self._tell(f"{doubt}")
        if policy != planner.policy:
            planner.adopt(policy)
            self._tell(f"{self.file}: adopted")
