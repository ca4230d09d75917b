"""The event set of NVML: devices that tell of their errors unasked. For the worker process alone."""

from __future__ import annotations

import _thread
import ctypes
import os
import time
from json import JSONEncoder

import pynvml

from nodeguard.worker.call_log import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

# Xids, and what changes a reading for the worse; not clocks and power states, which change all day. By
# number: not every pynvml has a name for each.
XID = 0x8
_WANTED = (
    XID
    | 0x2  # double-bit ECC error
    | 0x800  # DRAM retirement failed
    | 0x1000  # non-fatal poison
    | 0x2000  # fatal poison
    | 0x4000  # GPU unavailable
    | 0x8000  # recovery action
)

# Milliseconds of one wait. A device that is added meanwhile may be heard of only after it.
_WAIT = 10_000
# Seconds of rest after a wait that came back at once without an event, or whose event found no room; and
# after each event, so that a storm does not cost a core.
_REST = 1.0
_PACE = 0.005

_encode = JSONEncoder(separators=(",", ":")).encode


class _Set:
    """One event set. registered: indices of its devices. alive: whether its thread waits still, or may."""

    def __init__(self) -> None:
        self.handle = pynvml.nvmlEventSetCreate()
        self.registered: set[int] = set()
        self.waiting = False
        self.alive = True


class EventWatch:
    """Registers devices, and writes each event of theirs to a descriptor, a JSON line for each.

    A line is what device_events.DeviceEvent has. Registering is for the main thread, between its other calls;
    waiting happens in a thread of its own, which keeps nobody from ending the process.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._set: _Set | None = None
        self._addresses: dict[int, tuple[int, str]] = {}
        self._present: set[int] = set()
        self._stirred = False

    def take_activity(self) -> bool:
        """Whether anything was told since the last time that this was asked."""
        stirred, self._stirred = self._stirred, False
        return stirred

    def register(self, index: int, handle: Any, address: str) -> None:
        """Have a device's events told, unless they are. Raises pynvml.NVMLError, NVMLLibraryMismatchError."""
        self._present.add(index)
        self._addresses[_number(handle)] = (index, address)
        if self._set is not None and not self._set.alive:
            gone, self._set = self._set, None
            pynvml.nvmlEventSetFree(gone.handle)
        if self._set is not None and index in self._set.registered:
            return
        types = _supported(handle)
        if not types:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        if self._set is None:
            self._set = _Set()
        pynvml.nvmlDeviceRegisterEvents(handle, types, self._set.handle)
        self._set.registered.add(index)

    def listen(self) -> None:
        """Wait for what was registered, from now on. A device that has left is registered anew on return."""
        present, self._present = self._present, set()
        if self._set is None:
            return
        self._set.registered &= present
        if present and not self._set.waiting:
            self._set.waiting = True
            _thread.start_new_thread(self._wait, (self._set,))

    def _wait(self, waited: _Set) -> None:
        while True:
            began = time.monotonic()
            try:
                event = pynvml.nvmlEventSetWait_v2(waited.handle, _WAIT)
                heard = self._tell(event)
            except pynvml.NVMLError_Timeout:
                heard = time.monotonic() - began >= _REST
            except (pynvml.NVMLError_FunctionNotFound, pynvml.NVMLLibraryMismatchError):
                return  # this library will not learn it: registering anew is of no use
            except Exception:  # noqa: BLE001  (a GPU is lost, or the session is over: a new set may do)
                waited.alive = False
                return
            time.sleep(_PACE if heard else _REST)

    def _tell(self, event: Any) -> bool:
        """Write an event down. Returns whether there was room for it."""
        index, address = self._addresses.get(_number(event.device), (-1, ""))
        self._stirred = True
        line = [index, event.eventType, event.eventData, address, time.monotonic()]
        try:
            os.write(self._descriptor, f"{_encode(line)}\n".encode())
        except BlockingIOError:
            return False
        return True


def _number(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


def _supported(handle: Any) -> int:
    """The types of events that a device is to tell of, of those that it can."""
    try:
        return int(pynvml.nvmlDeviceGetSupportedEventTypes(handle)) & _WANTED
    except (pynvml.NVMLError_FunctionNotFound, pynvml.NVMLLibraryMismatchError):
        return XID
