"""DeviceEventQueue: NVML events from the worker, in a pipe that survives worker and lane."""

from __future__ import annotations

import os
import threading

import msgspec
from msgspec import Struct

from nodeguard.worker.process import above_standard

# Bytes, more than the pipe holds, so that one read returns all.
_READ = 1 << 20


class DeviceEvent(Struct, frozen=True, array_like=True):
    """An NVML event of a device.

    device: its index in the NVML session of the event, -1 if unknown; address: PCI address as NVML writes it,
    empty if unknown. type: NVML's nvmlEventType*, one bit; data: the code, for an Xid. at: seconds since
    boot, None if unknown.
    """

    device: int
    type: int
    data: int
    address: str = ""
    at: float | None = None


_event = msgspec.json.Decoder(DeviceEvent)


class DeviceEventQueue:
    """NVML events that workers received and that were not taken yet, oldest first.

    The pipe holds some thousand events; when it is full, new events are lost. Neither writer nor reader
    waits.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._closed = False
        self._read_end, self._write_end = map(above_standard, os.pipe())
        for end in (self._read_end, self._write_end):
            os.set_blocking(end, False)

    def fileno(self) -> int:
        """Return a descriptor that is readable when there are events; it stays the same until close."""
        return self._read_end

    def writable(self) -> int:
        """Return the end of the pipe for a worker."""
        return self._write_end

    def take(self) -> tuple[DeviceEvent, ...]:
        """Return and remove all events. Invalid lines are skipped."""
        with self._lock:
            try:
                lines = b"" if self._closed else os.read(self._read_end, _READ)
            except BlockingIOError:
                return ()
        return tuple(event for line in lines.splitlines() if (event := _read(line)) is not None)

    def close(self) -> None:
        """Close the pipe; events that were not taken are lost."""
        with self._lock:
            if not self._closed:
                self._closed = True
                os.close(self._read_end)
                os.close(self._write_end)


def _read(line: bytes) -> DeviceEvent | None:
    try:
        return _event.decode(line)
    except msgspec.DecodeError:
        return None
