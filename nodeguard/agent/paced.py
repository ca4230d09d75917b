"""A recorded machine whose time goes on as a clock does, and whose bundle may change meanwhile."""

from __future__ import annotations

import errno
import math
import threading
import time
from collections import Counter
from collections.abc import Callable

from nodeguard.bundle.defect import BundleError
from nodeguard.bundle.failing import refusal
from nodeguard.bundle.nvml import NvmlEvent
from nodeguard.bundle.recording import Moment, Recording
from nodeguard.bundle.watched import WatchedBundle
from nodeguard.model.instant import Instant
from nodeguard.sources.kernel_log import after, sequence
from nodeguard.sources.machine import Cursor, Hangs, Log
from nodeguard.sources.replay import ReplayMachine, told
from nodeguard.worker.device_events import DeviceEvent


class PacedMachine(ReplayMachine):
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
        logged: Cursor | None = None,
        hung: Hangs | None = None,
    ) -> None:
        super().__init__(bundle.recording, began or None, logged, hung)
        self._bundle = bundle
        self._moving = threading.Lock()
        self._added: list[NvmlEvent] = []
        self._clock, self._speed, self._began = clock, speed, clock() - began / speed

    def now(self) -> Instant:
        """See Machine.now; what is read after it is of this moment or a later one."""
        self._bundle.look()
        with self._moving:
            self.seek((self._clock() - self._began) * self._speed)
            return super().now()

    def moment(self) -> Moment:
        """What is there to be read, of the bundle as it was at the last `now`."""
        recording = self._bundle.renewed()
        if recording is not self._recording:
            with self._moving:
                self._adopt(recording)
        return self._moment

    def read(self, path: str) -> str:
        """See Machine.read."""
        try:
            return super().read(path)
        except BundleError as error:
            # Gone or forbidden since the bundle was looked through.
            cause = error.__cause__
            raise refusal((isinstance(cause, OSError) and cause.errno) or errno.EIO, path) from None

    def log(self, within: float = math.inf) -> Log:
        """See Machine.log: what frames say, and what is new in the bundle's own kmsg."""
        self._bundle.kmsg.leave()
        told = super().log(within)
        boot_id = self._moment.instant.boot_id
        grown = self._bundle.log(within)
        skip = after(self._cursor, boot_id)
        lay = (record for record in grown.before.records if not 0 <= sequence(record) <= skip)
        new = (*lay, *grown.since.records)
        last = max((told.last, *map(sequence, new)))
        self._last = Cursor(boot_id, last)
        return Log((*new, *told.records), more=grown.more, last=last)

    def log_descriptor(self) -> int:
        """A descriptor that is readable when the kernel log may have news."""
        return self._bundle.kmsg.fileno()

    def nvml_events(self) -> tuple[DeviceEvent, ...]:
        """See Machine.nvml_events; one that is added to the bundle for a second that is past happens now."""
        self.moment()
        with self._moving:
            added, self._added = self._added, []
        return (*map(told, added), *super().nvml_events())

    def _adopt(self, recording: Recording) -> None:
        known = Counter(self._recording.nvml_events(self._told))
        self._added += (Counter(recording.nvml_events(self._told)) - known).elements()
        self._recording = recording
        self.seek(self._at)
