"""What a source may ask of a machine, be it this one or a recorded one."""

from __future__ import annotations

import math
from typing import Any, Protocol

from msgspec import Struct

from nodeguard.model.instant import Instant
from nodeguard.sources.request import MetadataRequest, MetadataResponse
from nodeguard.worker.device_events import DeviceEvent
from nodeguard.worker.lane_state import Hang
from nodeguard.worker.result import LaneResult

# No file under /sys or /proc that a source reads is longer; what is, is cut.
READ_LIMIT = 1 << 20


class LogCursor(Struct, frozen=True):
    """How far the kernel log was read: the sequence number of a record, which counts from 0 in each boot."""

    boot_id: str
    sequence: int


class LaneHangs(Struct, frozen=True):
    """The calls that a machine's lanes hang in for the rest of this boot."""

    nvml: Hang | None = None
    filesystem: Hang | None = None


class LogRecords(Struct, frozen=True):
    """New records of the kernel log, raw as /dev/kmsg gives them.

    lost: how many were overwritten before they were read. more: whether there was no time for the newest,
    which the next reading may give. last: sequence number of the last record that was read by now, -1 where
    none was.
    """

    records: tuple[str, ...]
    lost: int = 0
    more: bool = False
    last: int = -1


class Machine(Protocol):
    """A machine to read. Paths are absolute, as on the machine itself.

    Each reading may raise OSError, with the errno that the machine gave, or UnansweredError.
    """

    def now(self) -> Instant:
        """This moment on the machine."""
        ...

    def read(self, path: str) -> str:
        """Text of a file, at most READ_LIMIT bytes; bytes that are no UTF-8 become U+FFFD."""
        ...

    def names(self, path: str) -> tuple[str, ...]:
        """Names in a directory, sorted."""
        ...

    def link(self, path: str) -> str:
        """Text of a symbolic link."""
        ...

    def call(self, name: str) -> dict[str, Any]:
        """Answer of a system call that does not block, by field: `adjtimex`."""
        ...

    def http(self, request: MetadataRequest, within: float) -> MetadataResponse:
        """Answer of the cloud's metadata service, redirects as they are. within: seconds for all of it.

        OSError is EPROTO for what is no HTTP, EMSGSIZE for an answer that is too long, EKEYREJECTED where no
        session token is given out.
        """
        ...

    def log(self, within: float = math.inf) -> LogRecords:
        """Records of the kernel log that were not read before, oldest first. within: seconds for it."""
        ...

    def statvfs(self, mounts: tuple[str, ...], within: float = math.inf) -> LaneResult:
        """statvfs of each mount point, through the file-system lane.

        The scope of an entry is the mount's index. within: seconds for the round.
        """
        ...

    def nvml(self, within: float = math.inf, leave: frozenset[int] = frozenset()) -> LaneResult:
        """One round of NVML calls, through its lane; the scope of an entry is the device's index.

        within: seconds for the round. leave: devices that are not to be touched.
        """
        ...

    def nvml_events(self) -> tuple[DeviceEvent, ...]:
        """Events of NVML since the last call, the oldest first."""
        ...


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

    def http(self, request: MetadataRequest, within: float) -> MetadataResponse:
        """See Machine.http."""
        return self._machine.http(request, self._left(within))

    def log(self, within: float = math.inf) -> LogRecords:
        """See Machine.log. To understand what was read takes as long as to read it."""
        return self._machine.log(self._left(within) / 2)

    def statvfs(self, mounts: tuple[str, ...], within: float = math.inf) -> LaneResult:
        """See Machine.statvfs."""
        return self._machine.statvfs(mounts, self._left(within))

    def nvml(self, within: float = math.inf, leave: frozenset[int] = frozenset()) -> LaneResult:
        """See Machine.nvml."""
        return self._machine.nvml(self._left(within), leave)

    def nvml_events(self) -> tuple[DeviceEvent, ...]:
        """See Machine.nvml_events."""
        return self._machine.nvml_events()

    def _left(self, within: float) -> float:
        return min(within, max(0.0, self._until - self._machine.now().mono))
