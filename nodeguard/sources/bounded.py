"""A machine for one round of one source, whose lanes end in time for that round."""

from __future__ import annotations

import math
from typing import Any

from nodeguard.model.instant import Instant
from nodeguard.sources.machine import Log, Machine
from nodeguard.sources.request import Request, Response
from nodeguard.worker.answer import Answer
from nodeguard.worker.device_events import DeviceEvent

# Seconds that a worker's end may take after its time is over, and its answer's way back; of a short limit a
# third, so that there is time to ask at all.
_GRACE = 6.0
_SHARE = 0.3


class BoundedMachine:
    """Another machine, of which a lane's round lasts no longer than a source may take.

    limit: seconds from now until the source must have come to its end.
    """

    def __init__(self, machine: Machine, limit: float) -> None:
        self._machine = machine
        self._until = machine.now().mono + limit - min(_GRACE, limit * _SHARE)

    def now(self) -> Instant:
        """See Machine.now."""
        return self._machine.now()

    def read(self, path: str) -> str:
        """See Machine.read."""
        return self._machine.read(path)

    def names(self, path: str) -> tuple[str, ...]:
        """See Machine.names."""
        return self._machine.names(path)

    def link(self, path: str) -> str:
        """See Machine.link."""
        return self._machine.link(path)

    def call(self, name: str) -> dict[str, Any]:
        """See Machine.call."""
        return self._machine.call(name)

    def http(self, request: Request, within: float) -> Response:
        """See Machine.http."""
        return self._machine.http(request, self._left(within))

    def log(self, within: float = math.inf) -> Log:
        """See Machine.log. To understand what was read takes as long as to read it."""
        return self._machine.log(self._left(within) / 2)

    def statvfs(self, mounts: tuple[str, ...], within: float = math.inf) -> Answer:
        """See Machine.statvfs."""
        return self._machine.statvfs(mounts, self._left(within))

    def nvml(self, within: float = math.inf, leave: frozenset[int] = frozenset()) -> Answer:
        """See Machine.nvml."""
        return self._machine.nvml(self._left(within), leave)

    def nvml_events(self) -> tuple[DeviceEvent, ...]:
        """See Machine.nvml_events."""
        return self._machine.nvml_events()

    def _left(self, within: float) -> float:
        return min(within, max(0.0, self._until - self._machine.now().mono))
