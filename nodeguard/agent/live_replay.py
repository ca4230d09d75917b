"""A recorded machine that is replayed in real time, and whose bundle may change meanwhile."""

from __future__ import annotations

import errno
import math
import threading
import time
from collections import Counter
from collections.abc import Callable

from nodeguard.bundle.failures import BundleError, os_error
from nodeguard.bundle.nvml import NvmlEvent
from nodeguard.bundle.recording import RecordedState, Recording
from nodeguard.bundle.watched import WatchedBundle
from nodeguard.model.instant import Instant
from nodeguard.sources.machine import LaneHangs, LogCursor, LogRecords
from nodeguard.sources.machines.kernel_log import last_sequence, sequence_number
from nodeguard.sources.machines.replay import ReplayMachine, device_event
from nodeguard.worker.device_events import DeviceEvent


class LiveReplayMachine(ReplayMachine):
    """The machine of a bundle in real time, which goes on after the last frame.

    speed: seconds of the recording in one of the clock's. began: the second of the recording at which it
    starts. logged, hung: see ReplayMachine. A reading has every change of the bundle before its start.
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
        """See Machine.now; what is read later has this time or a later one."""
        self._bundle.note_changes()
        with self._moving:
            self.seek((self._clock() - self._began) * self._speed)
            return super().now()

    def state(self) -> RecordedState:
        """Return the contents of the bundle as of the last `now`."""
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
            # Removed or forbidden since the bundle was scanned.
            cause = error.__cause__
            raise os_error((isinstance(cause, OSError) and cause.errno) or errno.EIO, path) from None

    def log(self, within: float = math.inf) -> LogRecords:
        """See Machine.log: the log of the frames, and what is new in the bundle's own kmsg."""
        self._bundle.kmsg.clear_ready()
        log = super().log(within)
        boot_id = self._state.instant.boot_id
        grown = self._bundle.read_log(within)
        skip = last_sequence(self._cursor, boot_id)
        lay = (record for record in grown.existing.records if not 0 <= sequence_number(record) <= skip)
        new = (*lay, *grown.appended.records)
        last = max((log.last, *map(sequence_number, new)))
        self._last_record = LogCursor(boot_id, last)
        return LogRecords((*new, *log.records), more=grown.more, last=last)

    def log_descriptor(self) -> int:
        """Return a descriptor that is readable when the kernel log may have news."""
        return self._bundle.kmsg.fileno()

    def nvml_events(self) -> tuple[DeviceEvent, ...]:
        """See Machine.nvml_events; an event that is added for a second in the past happens now."""
        self.state()
        with self._moving:
            added, self._added = self._added, []
        return (*map(device_event, added), *super().nvml_events())

    def _adopt(self, recording: Recording) -> None:
        before = Counter(self._recording.nvml_events(self._events_read_to))
        self._added += (Counter(recording.nvml_events(self._events_read_to)) - before).elements()
        self._recording = recording
        self.seek(self._at)
