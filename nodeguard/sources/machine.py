"""Machine: the calls through which sources read a live or recorded machine, its wrappers and requests."""

from __future__ import annotations

import math
from typing import Any, Protocol

from msgspec import Struct

from nodeguard.bundle.failures import failure_from_name
from nodeguard.model.instant import Instant
from nodeguard.worker.device_events import DeviceEvent
from nodeguard.worker.lane_state import Hang
from nodeguard.worker.result import LaneResult

# The link-local address of the metadata service on AWS, Azure and Google; it needs no name resolution.
ADDRESS = "169.254.169.254"
METADATA = (ADDRESS, 80)

# Bytes of a response; a longer one is rejected. A document on maintenance has a few hundred bytes.
ANSWER_LIMIT = 1 << 16


class MetadataRequest(Struct, frozen=True):
    """A GET of a machine's own metadata service.

    path: with its query. headers: those that the service requires, never a secret. session: whether the
    service requires a session token, as AWS does. The client gets the token and does not pass it on.
    """

    path: str
    headers: dict[str, str] = {}
    session: bool = False

    @property
    def call(self) -> str:
        """Return its name in calls.json: `http(GET http://169.254.169.254/…)`."""
        return f"http(GET http://{ADDRESS}{self.path})"


class MetadataResponse(Struct, frozen=True):
    """A response. body: only with status 200, at most ANSWER_LIMIT bytes; invalid UTF-8 becomes U+FFFD."""

    status: int
    body: str = ""


def recorded_response(answer: dict[str, Any] | None, call: str) -> MetadataResponse:
    """Return the response that calls.json has for a call. answer: its entry, None if it has none.

    Raises the OSError or UnansweredError that the entry names; ENOSYS if there is no entry.
    """
    if answer is None:
        answer = {"error": "ENOSYS"}
    if "error" in answer:
        raise failure_from_name(answer["error"], call)
    return MetadataResponse(answer["status"], answer.get("body", ""))


# Files under /sys and /proc that sources read are shorter. A longer file is cut here.
READ_LIMIT = 1 << 20

# Seconds that a worker may take to end after its time is over and to return its results. For a short limit it
# is a share of the limit, so that there is time left to read.
_GRACE = 6.0
_GRACE_SHARE = 0.3


class LogCursor(Struct, frozen=True):
    """How far the kernel log was read: the sequence number of a record, which counts from 0 in each boot."""

    boot_id: str
    sequence: int


class LaneHangs(Struct, frozen=True):
    """The calls in which a machine's lanes hang for the rest of this boot."""

    nvml: Hang | None = None
    filesystem: Hang | None = None


class LogRecords(Struct, frozen=True):
    """New records of the kernel log, raw as /dev/kmsg returns them.

    lost: number of records that were overwritten before they were read. more: whether the time ran out before
    the newest records, which the next call may return. last: sequence number of the last record that was read
    so far, -1 if none was.
    """

    records: tuple[str, ...]
    lost: int = 0
    more: bool = False
    last: int = -1


class Machine(Protocol):
    """A machine to read. Paths are absolute, as on the machine itself.

    Each call may raise OSError, with the machine's errno, or UnansweredError.
    """

    def now(self) -> Instant:
        """Return the current time of the machine."""
        ...

    def read(self, path: str) -> str:
        """Return the text of a file, at most READ_LIMIT bytes; invalid UTF-8 becomes U+FFFD."""
        ...

    def names(self, path: str) -> tuple[str, ...]:
        """Return the names in a directory, sorted."""
        ...

    def link(self, path: str) -> str:
        """Return the text of a symbolic link."""
        ...

    def call(self, name: str) -> dict[str, Any]:
        """Return the result of a system call that does not block, by field: `adjtimex`."""
        ...

    def http(self, request: MetadataRequest, within: float) -> MetadataResponse:
        """Return the response of the cloud's metadata service; redirects are not followed.

        within: seconds for the whole request. OSError is EPROTO for an invalid HTTP response, EMSGSIZE for a
        response that is too long, EKEYREJECTED where the service issues no session token.
        """
        ...

    def log(self, within: float = math.inf) -> LogRecords:
        """Return the records of the kernel log that were not read before, oldest first, within seconds."""
        ...

    def statvfs(self, mounts: tuple[str, ...], within: float = math.inf) -> LaneResult:
        """Call statvfs for each mount point, through the file-system lane.

        The scope of a result is the mount's index. within: seconds for the round.
        """
        ...

    def nvml(self, within: float = math.inf, leave: frozenset[int] = frozenset()) -> LaneResult:
        """Make one round of NVML calls, through its lane; the scope of a result is the device's index.

        within: seconds for the round. leave: devices that the round must not touch.
        """
        ...

    def nvml_events(self) -> tuple[DeviceEvent, ...]:
        """Return the NVML events since the last call, oldest first."""
        ...


class BoundedMachine:
    """A machine for one reading of one source: a lane's round ends before the source's deadline.

    limit: seconds from now until the source must be done. Other calls are passed on.
    """

    def __init__(self, machine: Machine, limit: float) -> None:
        self._machine = machine
        self._until = machine.now().mono + limit - min(_GRACE, limit * _GRACE_SHARE)

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
        return self._machine.http(request, self._remaining(within))

    def log(self, within: float = math.inf) -> LogRecords:
        """See Machine.log. Half of the time is left to parse the records."""
        return self._machine.log(self._remaining(within) / 2)

    def statvfs(self, mounts: tuple[str, ...], within: float = math.inf) -> LaneResult:
        """See Machine.statvfs."""
        return self._machine.statvfs(mounts, self._remaining(within))

    def nvml(self, within: float = math.inf, leave: frozenset[int] = frozenset()) -> LaneResult:
        """See Machine.nvml."""
        return self._machine.nvml(self._remaining(within), leave)

    def nvml_events(self) -> tuple[DeviceEvent, ...]:
        """See Machine.nvml_events."""
        return self._machine.nvml_events()

    def _remaining(self, within: float) -> float:
        return min(within, max(0.0, self._until - self._machine.now().mono))
