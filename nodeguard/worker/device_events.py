"""Events of NVML on their way from the worker that waits for them: a pipe that outlives worker and lane."""

from __future__ import annotations

import os
import threading

import msgspec
from msgspec import Struct

from nodeguard.worker.process import above_standard

# More than the pipe holds, so that one read takes all.
_MOST = 1 << 20


class DeviceEvent(Struct, frozen=True, array_like=True):
    """Something that NVML told of a device unasked.

    device: its index in the session of NVML that told it, -1 where it is not known; address: on the PCI bus,
    as NVML writes it, empty where it is not known. type: NVML's nvmlEventType*, one bit; data: of an Xid its
    code. at: seconds since boot, None where nobody noted it.
    """

    device: int
    type: int
    data: int
    address: str = ""
    at: float | None = None


_event = msgspec.json.Decoder(DeviceEvent)


class DeviceEventQueue:
    """What workers have heard and nobody has asked for, the oldest first; what finds no room is lost.

    Room is a pipe's: some thousand events. Nobody ever waits for it, neither the worker that writes nor who
    asks.
    """

    def __init__(self) -> None:
        self._reading = threading.Lock()
        self._closed = False
        self._out, self._in = map(above_standard, os.pipe())
        for end in (self._out, self._in):
            os.set_blocking(end, False)

    def fileno(self) -> int:
        """Readable when there are events; the same until it is closed."""
        return self._out

    def writable(self) -> int:
        """The end that a worker gets."""
        return self._in

    def take(self) -> tuple[DeviceEvent, ...]:
        """All events that there are. Lines that no worker writes are left out."""
        with self._reading:
            try:
                lines = b"" if self._closed else os.read(self._out, _MOST)
            except BlockingIOError:
                return ()
        return tuple(event for line in lines.splitlines() if (event := _read(line)) is not None)

    def close(self) -> None:
        """Close it; events that were not taken are lost."""
        with self._reading:
            if not self._closed:
                self._closed = True
                os.close(self._out)
                os.close(self._in)


def _read(line: bytes) -> DeviceEvent | None:
    try:
        return _event.decode(line)
    except msgspec.DecodeError:
        return None
