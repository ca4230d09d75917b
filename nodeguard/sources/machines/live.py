"""LiveMachine: this machine, read through its files, its kernel log and the worker lanes."""

from __future__ import annotations

import ctypes
import errno
import math
import os
import time
from typing import TYPE_CHECKING, Any, Self

from nodeguard.model.failure import UserError
from nodeguard.model.instant import Instant
from nodeguard.sources.machine import (
    METADATA,
    READ_LIMIT,
    LaneHangs,
    LogCursor,
    LogRecords,
    MetadataRequest,
    MetadataResponse,
)
from nodeguard.sources.machines.kernel_log import KernelLog, last_sequence
from nodeguard.worker.device_events import DeviceEvent, DeviceEventQueue
from nodeguard.worker.lane import WorkerLane, filesystem_lane, nvml_lane
from nodeguard.worker.result import LaneResult

if TYPE_CHECKING:
    from nodeguard.sources.machines.metadata import MetadataClient


_NANOSECONDS = 0x2000  # STA_NANO: the offset counts nanoseconds


class _Timex(ctypes.Structure):
    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("constant", ctypes.c_long),
        ("precision", ctypes.c_long),
        ("tolerance", ctypes.c_long),
        ("time", ctypes.c_long * 2),
        ("tick", ctypes.c_long),
        ("rest", ctypes.c_byte * 128),
    )


def adjtimex() -> dict[str, int]:
    """Return the kernel's clock state: status bits, offset and errors in microseconds, state (5 is an error).

    Raises OSError.
    """
    timex = _Timex()
    state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(timex))
    if state < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "adjtimex")
    return {
        "status": timex.status,
        "offset_us": timex.offset // 1000 if timex.status & _NANOSECONDS else timex.offset,
        "maxerror_us": timex.maxerror,
        "esterror_us": timex.esterror,
        "state": state,
    }


# Paths that an NVIDIA driver creates. Without any of them there is no driver, and no worker is started.
_DRIVER_TRACES = (
    "/dev/nvidiactl",
    "/proc/driver/nvidia",
    "/sys/module/nvidia",
    "/run/nvidia/driver",
    "/dev/dxg",
)
_LIBRARY = b"libnvidia-ml.so.1"

# Files of this process, which may show a container; and of process 1, which show the machine.
_SELF, _FIRST = "/proc/self/", "/proc/1/"

# Bytes of one read. The first read returns a whole sysfs attribute: it has at most one page. Source: Linux
# Documentation/filesystems/sysfs.rst.
_CHUNK = 65_536


class LiveMachine:
    """This machine. root: path of its root directory, for an agent in a container.

    cursor: how far an earlier agent read the kernel log; None if it did not. hangs: the calls in which lanes
    of an earlier agent hung in this boot. metadata: host and port of the cloud's metadata service. Raises
    UserError where /proc is not mounted.
    A read may block if hardware does not answer: a caller that must not wait reads in a thread.
    """

    def __init__(
        self,
        root: str = "",
        cursor: LogCursor | None = None,
        hangs: LaneHangs | None = None,
        metadata: tuple[str, int] = METADATA,
    ) -> None:
        self._root = root.rstrip("/")
        self._cursor = cursor
        self._hangs = hangs or LaneHangs()
        self._metadata_at = metadata
        self._metadata: MetadataClient | None = None
        self._log: KernelLog | None = None
        self._filesystems: WorkerLane | None = None
        self._gpus: WorkerLane | None = None
        self._events = DeviceEventQueue()
        try:
            self._boot_id = self.read("/proc/sys/kernel/random/boot_id").strip()
        except OSError as error:
            remedy = "--root names the directory that is the machine's root" if root else "mount /proc"
            raise UserError(f"{error.filename}: {error.strerror}: {remedy}") from None

    def now(self) -> Instant:
        """See Machine.now."""
        return Instant(time.time(), time.clock_gettime(time.CLOCK_MONOTONIC), self._boot_id)

    def read(self, path: str) -> str:
        """See Machine.read."""
        if self._root and path.startswith(_SELF):
            # In a container, /proc/self of the mounted root is not this process. Use process 1.
            path = _FIRST + path.removeprefix(_SELF)
        descriptor = os.open(self._root + path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            chunks = [os.read(descriptor, _CHUNK)]
            if path.startswith("/sys/") and len(chunks[0]) < _CHUNK:
                return chunks[0].decode(errors="replace")
            while chunks[-1] and sum(map(len, chunks)) < READ_LIMIT:
                chunks.append(os.read(descriptor, _CHUNK))
        finally:
            os.close(descriptor)
        return b"".join(chunks)[:READ_LIMIT].decode(errors="replace")

    def names(self, path: str) -> tuple[str, ...]:
        """See Machine.names."""
        return tuple(sorted(os.listdir(self._root + path)))

    def link(self, path: str) -> str:
        """See Machine.link."""
        return os.readlink(self._root + path)

    def call(self, name: str) -> dict[str, Any]:
        """See Machine.call."""
        if name != "adjtimex":
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), name)
        return adjtimex()

    def http(self, request: MetadataRequest, within: float) -> MetadataResponse:
        """See Machine.http."""
        if self._metadata is None:
            # Imports http.client, which only machines in a cloud need.
            from nodeguard.sources.machines.metadata import MetadataClient  # noqa: PLC0415

            self._metadata = MetadataClient(self._metadata_at)
        return self._metadata.fetch(request, within)

    def log(self, within: float = math.inf) -> LogRecords:
        """See Machine.log."""
        return self._kernel_log().read(within)

    def log_descriptor(self) -> int | None:
        """Return a descriptor that is readable when there are new log records; None without access."""
        try:
            return self._kernel_log().fileno()
        except OSError:
            return None

    def _kernel_log(self) -> KernelLog:
        if self._log is None:
            self._log = KernelLog(f"{self._root}/dev/kmsg", last_sequence(self._cursor, self._boot_id))
        return self._log

    def statvfs(self, mounts: tuple[str, ...], within: float = math.inf) -> LaneResult:
        """See Machine.statvfs."""
        if self._filesystems is None:
            self._filesystems = filesystem_lane(self._root, hang=self._hangs.filesystem)
        return self._filesystems.round(mounts, within)

    def nvml(self, within: float = math.inf, leave: frozenset[int] = frozenset()) -> LaneResult:
        """See Machine.nvml."""
        if self._gpus is None:
            if not self._has_driver_trace():
                return LaneResult(missing="no NVIDIA driver and no libnvidia-ml.so.1 on this machine")
            self._gpus = nvml_lane(root=self._root, hang=self._hangs.nvml, events=self._events)
        return self._gpus.round(within=within, leave=leave)

    def detach_gpus(self, *, ends_stalls: bool) -> None:
        """Close all GPU devices, after a round in progress has ended; the next round opens them again.

        ends_stalls: whether it calls GPUs with a stalled call again, since a reset may have repaired them.
        """
        if self._gpus is not None:
            self._gpus.stop_worker(ends_stalls=ends_stalls)

    def hangs(self) -> LaneHangs:
        """Return the calls in which the lanes hang, for the next agent in this boot."""
        return LaneHangs(
            self._gpus.hang if self._gpus else self._hangs.nvml,
            self._filesystems.hang if self._filesystems else self._hangs.filesystem,
        )

    def nvml_events(self) -> tuple[DeviceEvent, ...]:
        """See Machine.nvml_events. Events arrive after the first NVML round has ended."""
        return self._events.take()

    def events_descriptor(self) -> int:
        """Return a descriptor that is readable when there are NVML events to take."""
        return self._events.fileno()

    def _has_driver_trace(self) -> bool:
        if any(os.path.exists(self._root + path) for path in _DRIVER_TRACES):
            return True
        try:
            with open(f"{self._root}/etc/ld.so.cache", "rb") as cache:
                return _LIBRARY in cache.read(16 * READ_LIMIT)
        except OSError:
            return False

    def close(self) -> None:
        """Stop the workers."""
        for lane in (self._filesystems, self._gpus):
            if lane is not None:
                lane.close()
        self._events.close()
        if self._log is not None:
            self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
