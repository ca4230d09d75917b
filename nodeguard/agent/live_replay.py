"""A recorded machine whose time goes on as a clock does, and whose bundle may change meanwhile."""

from __future__ import annotations

import errno
import math
import threading
import time
from collections import Counter
from collections.abc import Callable

from nodeguard.bundle.defect import BundleError
from nodeguard.bundle.failures import os_error
from nodeguard.bundle.nvml import NvmlEvent
from nodeguard.bundle.recording import RecordedState, Recording
from nodeguard.bundle.watched import WatchedBundle
from nodeguard.model.instant import Instant
from nodeguard.sources.machine import LaneHangs, LogCursor, LogRecords
from nodeguard.sources.machines.kernel_log import last_sequence, sequence_number
from nodeguard.sources.machines.replay import ReplayMachine, device_event
from nodeguard.worker.device_events import DeviceEvent


class LiveReplayMachine(ReplayMachine):
    """The machine of a bundle, live: at second `began` when this is made; after the last frame time goes on.

    speed: seconds of the recording in one of the clock's. logged, hung: see ReplayMachine. What changes in
    the bundle before a round begins is read in it.
    """

    def __init__(
        self,
        bundle: WatchedBundle,
        speed: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
        *,
        began: float = 0.0,
        logged: LogCursor | None = None,
        hung: LaneHangs | None = None,
    ) -> None:
        super().__init__(bundle.recording, began or None, logged, hung)
        self._bundle = bundle
        self._moving = threading.Lock()
        self._added: list[NvmlEvent] = []
        self._clock, self._speed, self._began = clock, speed, clock() - began / speed

    def now(self) -> Instant:
        """See Machine.now; what is read after it is of this moment or a later one."""
        self._bundle.note_changes()
        with self._moving:
            self.seek((self._clock() - self._began) * self._speed)
            return super().now()

    def state(self) -> RecordedState:
        """What is there to be read, of the bundle as it was at the last `now`."""
        recording = self._bundle.reload()
        if recording is not self._recording:
            with self._moving:
                self._adopt(recording)
        return self._state

    def read(self, path: str) -> str:
        """See Machine.read."""
        try:
            return super().read(path)
        except BundleError as error:
            # Gone or forbidden since the bundle was looked through.
            cause = error.__cause__
            raise os_error((isinstance(cause, OSError) and cause.errno) or errno.EIO, path) from None

    def log(self, within: float = math.inf) -> LogRecords:
        """See Machine.log: what frames say, and what is new in the bundle's own kmsg."""
        self._bundle.kmsg.clear_ready()
        told = super().log(within)
        boot_id = self._state.instant.boot_id
        grown = self._bundle.read_log(within)
        skip = last_sequence(self._cursor, boot_id)
        lay = (record for record in grown.existing.records if not 0 <= sequence_number(record) <= skip)
        new = (*lay, *grown.appended.records)
        last = max((told.last, *map(sequence_number, new)))
        self._last_record = LogCursor(boot_id, last)
        return LogRecords((*new, *told.records), more=grown.more, last=last)

    def log_descriptor(self) -> int:
        """A descriptor that is readable when the kernel log may have news."""
        return self._bundle.kmsg.fileno()

    def nvml_events(self) -> tuple[DeviceEvent, ...]:
        """See Machine.nvml_events; one that is added to the bundle for a second that is past happens now."""
        self.state()
        with self._moving:
            added, self._added = self._added, []
        return (*map(device_event, added), *super().nvml_events())

    def _adopt(self, recording: Recording) -> None:
        known = Counter(self._recording.nvml_events(self._events_read_to))
        self._added += (Counter(recording.nvml_events(self._events_read_to)) - known).elements()
        self._recording = recording
        self.seek(self._at)
