"""The node that an agent watches, with its stored state: this machine, or a recording in real time.

The kernel log and the NVML events have descriptors; their sources are read as soon as these are readable.
"""

from __future__ import annotations

import asyncio
import errno
import math
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence

from msgspec import Struct

from nodeguard.agent.agent import Agent
from nodeguard.agent.state import AgentState
from nodeguard.agent.state_file import StateFile
from nodeguard.bundle.failures import BundleError, os_error
from nodeguard.bundle.nvml import NvmlEvent
from nodeguard.bundle.recording import RecordedState, Recording
from nodeguard.bundle.watched import WatchedBundle
from nodeguard.derive.derive import PlatformHints
from nodeguard.model.instant import Instant
from nodeguard.sources.machine import LaneHangs, LogCursor, LogRecords
from nodeguard.sources.machines.kernel_log import last_sequence, sequence_number
from nodeguard.sources.machines.live import LiveMachine
from nodeguard.sources.machines.replay import ReplayMachine, device_event
from nodeguard.sources.source import Source
from nodeguard.worker.device_events import DeviceEvent

# Seconds for the disk to return a state before the agent starts without.
_LOAD_TIMEOUT = 10.0

# Seconds between two readings of the kernel log, at least. In a flood the agent rests three times as long as
# the last evaluation took, so that it uses about a quarter of a core, and never longer than _FLOOD_REST,
# because a line waits for it.
_LOG_REST = 0.002
_FLOOD_REST = 0.02
_REST_FACTOR = 3.0

# Seconds between two readings of NVML that its events cause: a reading makes a hundred calls for each GPU,
# and an error storm brings a thousand events.
_EVENT_REST = 2.0
# Seconds between two readings after a failed one: the descriptor stays readable.
_FAILED_REST = 1.0


class LiveReplayMachine(ReplayMachine):
    """The machine of a bundle in real time. Time continues after the last frame.

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

    def close(self) -> None:
        """End the watch of the bundle."""
        self._bundle.close()

    def now(self) -> Instant:
        """See Machine.now. Later readings have this time or a later one."""
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
        """See Machine.log: the log of the frames, and the new records of the bundle's own kmsg."""
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


class WatchedNode(Struct, frozen=True):
    """A machine, its sources, and its state of before.

    load_error: why and when, by the wall clock, an earlier state could not be used; empty for no error.
    offset: see SourceSchedule. speed: seconds of the machine in one of the clock's.
    """

    machine: LiveMachine | LiveReplayMachine
    sources: Sequence[Source]
    site: PlatformHints
    state: AgentState
    load_error: tuple[str, float]
    offset: float = 0.0
    speed: float = 1.0

    def close(self) -> None:
        """End the machine's workers, or the watch of the recording."""
        self.machine.close()


def watch_live(
    root: str, sources: Sequence[Source], site: PlatformHints, file: StateFile | None
) -> WatchedNode:
    """Return this machine. root: see LiveMachine. file: of its state."""
    now = LiveMachine(root).now()
    state, load_error = _load(file, now, now.wall)
    machine = LiveMachine(root, state.pipeline.cursor, state.hangs)
    return WatchedNode(machine, sources, site, state, load_error, random.random())  # noqa: S311 - jitter


def watch_recording(
    bundle: WatchedBundle,
    speed: float,
    sources: Sequence[Source],
    site: PlatformHints,
    file: StateFile | None,
) -> WatchedNode:
    """Return the machine of a bundle, which continues where its state ends. The manifest completes site."""
    start = bundle.recording.state_at(0.0).instant
    try:
        state, load_error = _load(file, Instant(start.wall, float("inf"), start.boot_id), start.wall)
    except BaseException:
        bundle.close()
        raise
    began = max(0.0, state.mono - start.mono) if state.boot_id == start.boot_id else 0.0
    manifest = bundle.recording.manifest
    recorded = [source for source in sources if bundle.is_recorded(source.name, source.paths)]
    cursor, hangs = state.pipeline.cursor, state.hangs
    machine = LiveReplayMachine(bundle, speed, began=began, logged=cursor, hung=hangs)
    site = PlatformHints(site.platform or manifest.platform, site.instance_type or manifest.instance_type)
    return WatchedNode(machine, recorded, site, state, load_error, speed=speed)


def _load(file: StateFile | None, now: Instant, wall: float) -> tuple[AgentState, tuple[str, float]]:
    state, error = file.load(now, _LOAD_TIMEOUT) if file else (AgentState(), "")
    return state, (error, wall) if error else (state.load_error, state.load_error_at)


def watch_descriptors(machine: LiveMachine | LiveReplayMachine, agent: Agent) -> None:
    """Have the kernel log read as soon as it has a line, and NVML as soon as it has an event."""
    log = machine.log_descriptor()
    if log is not None and agent.has_source("kmsg"):
        _read_when_readable(agent, "kmsg", log, _LOG_REST)
    if isinstance(machine, LiveMachine):
        _read_when_readable(agent, "nvml", machine.events_descriptor(), _EVENT_REST)


def _read_when_readable(agent: Agent, source: str, descriptor: int, rest: float) -> None:
    """Read a source as soon as a descriptor is readable, and then not for so many seconds."""
    loop = asyncio.get_running_loop()

    def read() -> None:
        loop.remove_reader(descriptor)
        agent.read(source, together=0.0)
        loop.call_later(rest, resume)

    def resume() -> None:
        # The descriptor stays readable until the reading has taken what there is.
        if agent.is_reading(source):
            loop.call_later(rest, resume)
        elif source in agent.latest and not agent.latest[source].complete:
            loop.call_later(max(0.0, _FAILED_REST - rest), watch)
        else:
            flood_rest = min(_FLOOD_REST, _REST_FACTOR * agent.evaluation_seconds)
            loop.call_later(max(0.0, flood_rest - rest), watch)

    def watch() -> None:
        loop.add_reader(descriptor, read)

    watch()
