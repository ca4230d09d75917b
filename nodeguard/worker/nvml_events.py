"""EventWatch: receives NVML events of the devices. Only for the worker process."""

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

# Xids, and events after which readings get worse; not clocks and power states, which change often. By number:
# not every pynvml has all names.
XID = 0x8
_TYPES = (
    XID
    | 0x2  # double-bit ECC error
    | 0x800  # DRAM retirement failed
    | 0x1000  # non-fatal poison
    | 0x2000  # fatal poison
    | 0x4000  # GPU unavailable
    | 0x8000  # recovery action
)

# Milliseconds of one wait. Events of a device that is added during a wait may arrive only after it.
_WAIT = 10_000
# Seconds to pause after a wait that returned at once without an event, or with an event that did not fit into
# the pipe; and after each event, so that a storm does not use a whole core.
_REST = 1.0
_PACE = 0.005

_encode = JSONEncoder(separators=(",", ":")).encode


class _Set:
    """One event set. registered: indices of its devices. alive: whether its thread waits, or can wait."""

    def __init__(self) -> None:
        self.handle = pynvml.nvmlEventSetCreate()
        self.registered: set[int] = set()
        self.waiting = False
        self.alive = True


class EventWatch:
    """Registers devices and writes each of their events to a descriptor, one JSON line for each event.

    A line has the fields of device_events.DeviceEvent. The main thread registers devices between its other
    calls. A thread of its own waits for events; it does not prevent the end of the process.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._set: _Set | None = None
        self._addresses: dict[int, tuple[int, str]] = {}
        self._present: set[int] = set()
        self._has_activity = False

    def take_activity(self) -> bool:
        """Return whether there was an event since the last call."""
        has_activity, self._has_activity = self._has_activity, False
        return has_activity

    def register(self, index: int, handle: Any, address: str) -> None:
        """Register a device, unless it is registered. Raises pynvml.NVMLError, NVMLLibraryMismatchError."""
        self._present.add(index)
        self._addresses[_number(handle)] = (index, address)
        if self._set is not None and not self._set.alive:
            dead, self._set = self._set, None
            pynvml.nvmlEventSetFree(dead.handle)
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
        """Wait for events of the registered devices from now on. Forget devices that have disappeared."""
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
                is_paced = self._write(event)
            except pynvml.NVMLError_Timeout:
                is_paced = time.monotonic() - began >= _REST
            except (pynvml.NVMLError_FunctionNotFound, pynvml.NVMLLibraryMismatchError):
                return  # this library does not support it: another set does not help
            except Exception:  # noqa: BLE001  (a GPU is lost, or the session has ended: a new set may work)
                waited.alive = False
                return
            time.sleep(_PACE if is_paced else _REST)

    def _write(self, event: Any) -> bool:
        """Write an event to the pipe. Return whether there was room."""
        index, address = self._addresses.get(_number(event.device), (-1, ""))
        self._has_activity = True
        line = [index, event.eventType, event.eventData, address, time.monotonic()]
        try:
            os.write(self._descriptor, f"{_encode(line)}\n".encode())
        except BlockingIOError:
            return False
        return True


def _number(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


def _supported(handle: Any) -> int:
    """Return the types of events to register, of those that the device supports."""
    try:
        return int(pynvml.nvmlDeviceGetSupportedEventTypes(handle)) & _TYPES
    except (pynvml.NVMLError_FunctionNotFound, pynvml.NVMLLibraryMismatchError):
        return XID
