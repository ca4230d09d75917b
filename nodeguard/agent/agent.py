"""The agent's loop: read each source at its interval, evaluate the readings together."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from math import inf

from msgspec.structs import replace

from nodeguard.agent.transitions import LoggedVerdict, log_transitions, logged_verdict, raised_findings
from nodeguard.model.finding import DataStatus, Health, Verdict
from nodeguard.model.instant import Instant
from nodeguard.model.observation import LOG_POSITION, Observation, Reading
from nodeguard.model.target import NODE
from nodeguard.pipeline.pipeline import Pipeline
from nodeguard.pipeline.reader import Reader, build_reading
from nodeguard.sources.machine import Machine
from nodeguard.sources.nvml import GpuIdentity, gpu_identities
from nodeguard.sources.source import Source

logger = logging.getLogger(__name__)

# Seconds by which a sum of intervals may miss a due time.
_ROUNDING = 1e-3

# Readings that end within this time (seconds) are evaluated together: sources of one interval are read in
# parallel, and a slow one must not delay the others.
_TOGETHER = 0.2

# Seconds until a reading without news is evaluated: lines that mean nothing come at any rate.
_WITHOUT_NEWS = 2.0

# Called with each verdict, its time, and whether the log has a line about it.
OnVerdict = Callable[[Verdict, Instant, bool], None]


class AsyncReader(Reader):
    """Reads each source in a thread of its own, which wakes the event loop when it ends."""

    async def read_one(self, source: Source) -> Reading:
        """Return one reading of a source, at its deadline at the latest."""
        loop, began = asyncio.get_running_loop(), self._machine.now().mono
        done = asyncio.Event()

        def ended() -> None:
            with suppress(RuntimeError):  # the loop may have ended before a source that was late
                loop.call_soon_threadsafe(done.set)

        try:
            end, observations = self._start(source, source.deadline, self._machine, ended)
        except RuntimeError as error:
            detail = f"no thread can be started ({error}): raise the limit on processes"
            failed = Observation(source.name, NODE, "failed", detail=detail)
            return build_reading(source, self._machine, [failed], began)
        if end is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(source.deadline):
                    await done.wait()
            if done.is_set():
                return build_reading(source, self._machine, observations, began)
            self._late[source.name] = end
        detail = f"gave no answer within {source.deadline:g} s"
        hung = Observation(source.name, NODE, "hung", detail=detail)
        return build_reading(source, self._machine, [*observations, hung], began)


class SourceSchedule:
    """When to read which source.

    Each source has its own interval; due times are multiples of it, so sources are read together where that
    is possible. offset: delay of this node, as a part (0 to 1) of the shortest interval, so that nodes do not
    read in step. Times are seconds of a monotonic clock.
    """

    def __init__(self, sources: Sequence[Source], offset: float) -> None:
        self._sources = tuple(sources)
        self._delay = offset * min((source.interval for source in sources), default=0.0)
        self._due: dict[str, float] = {}

    def due(self, now: float) -> list[Source]:
        """Return the sources to read now; all of them the first time. A missed reading is not repeated."""
        sources = [source for source in self._sources if self._due.get(source.name, now) <= now]
        for source in sources:
            past = (now - self._delay + _ROUNDING) // source.interval
            self._due[source.name] = (past + 1) * source.interval + self._delay
        return sources

    def next(self) -> float:
        """Return when a source is due again; infinity without sources."""
        return min(self._due.values(), default=inf)


class Agent:
    """Reads and evaluates one node until it is stopped.

    offset: see SourceSchedule. speed: seconds of the machine in one of the clock's. logged: the verdict that
    the log shows from before a restart.

    verdict: the latest, None before the first. evaluations: how many there
    were. evaluation_seconds: of the latest one. findings_raised: number of findings that began, by check and
    health. latest: the latest reading of each source.
    """

    def __init__(
        self,
        machine: Machine,
        sources: Sequence[Source],
        pipeline: Pipeline,
        offset: float,
        speed: float = 1.0,
        logged: LoggedVerdict | None = None,
    ) -> None:
        self._machine = machine
        self._sources = {source.name: source for source in sources}
        self._pipeline = pipeline
        self._reader = AsyncReader(machine)
        self._schedule = SourceSchedule(sources, offset)
        self.speed = speed
        self._readings: list[Reading] = []
        self._reading: set[str] = set()
        self._evaluation: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopped = asyncio.Event()
        self._on_verdict: OnVerdict | None = None
        self.verdict: Verdict | None = None
        self.evaluations = 0
        self.evaluation_seconds = 0.0
        self.findings_raised: Counter[tuple[str, Health]] = Counter()
        self.latest: dict[str, Reading] = {}
        self.logged = logged

    async def run(self, on_verdict: OnVerdict | None = None) -> None:
        """Read and evaluate until `stop`; readings that have ended by then are evaluated. on_verdict: called
        with each verdict.
        """
        self._on_verdict = on_verdict
        loop = asyncio.get_running_loop()
        while not self._stopped.is_set():
            for source in self._schedule.due(loop.time() * self.speed):
                self.read(source.name)
            try:
                async with asyncio.timeout_at(self._schedule.next() / self.speed):
                    await self._stopped.wait()
            except TimeoutError:
                continue
        for task in self._tasks:
            task.cancel()
        if self._readings:
            self.evaluate()

    def now(self) -> Instant:
        """Return the present time of the machine."""
        return self._machine.now()

    def stop(self) -> None:
        """End at once."""
        self._stopped.set()

    def read(self, name: str, together: float = _TOGETHER) -> None:
        """Start to read a source, unless that is under way. together: see add_reading."""
        if name in self._reading:
            return
        self._reading.add(name)
        task = asyncio.get_running_loop().create_task(self._read(self._sources[name], together))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def has_source(self, name: str) -> bool:
        """Return whether a source of this name is read."""
        return name in self._sources

    @property
    def xid_events(self) -> Mapping[tuple[str, int], int]:
        """Return the number of Xids since the start, by target and code; code 0 for unlisted codes."""
        return self._pipeline.xid_events

    def gpu_identities(self) -> Mapping[str, GpuIdentity]:
        """Return the names of the GPUs that NVML has listed, by target."""
        return gpu_identities(self._sources.values())

    def is_reading(self, name: str) -> bool:
        """Return whether a source is being read."""
        return name in self._reading

    def ages(self) -> dict[str, float]:
        """Return the seconds since each source was read."""
        read_at = {name: reading.at for name, reading in self.latest.items() if name in self._sources}
        return source_ages(read_at, self._machine.now().mono)

    def unread_sources(self) -> Iterator[str]:
        """Return the sources that have no reading yet."""
        return (name for name in self._sources if name not in self.latest)

    def add_reading(self, reading: Reading, together: float = _TOGETHER) -> None:
        """Take a reading; evaluate it after so many seconds, with those that end until then."""
        self._readings.append(reading)
        self.latest[reading.source] = reading
        loop = asyncio.get_running_loop()
        if not self.evaluations:
            # At the start all sources are read, and a single one allows no conclusion.
            together = _TOGETHER if any(self.unread_sources()) else 0.0
        if self._evaluation is None or loop.time() + together < self._evaluation.when():
            if self._evaluation is not None:
                self._evaluation.cancel()
            self._evaluation = loop.call_later(together, self.evaluate)

    async def _read(self, source: Source, together: float) -> None:
        try:
            reading = await self._reader.read_one(source)
        finally:
            self._reading.discard(source.name)
        self.add_reading(reading, together if _has_news(reading) else _WITHOUT_NEWS)

    def evaluate(self) -> None:
        """Evaluate the readings since the last evaluation, if any."""
        if self._evaluation is not None:
            self._evaluation.cancel()
        self._evaluation, readings, self._readings = None, self._readings, []
        began = time.perf_counter()
        now = self._machine.now()
        try:
            self.verdict = self._pipeline.evaluate(readings, now)
        except Exception:  # the node must stay monitored
            logger.exception("cannot evaluate the readings, please report it")
            if self.verdict is not None:
                self.verdict = replace(self.verdict, data_status=DataStatus.UNKNOWN)
            return
        self.evaluations += 1
        before, self.logged = self.logged, logged_verdict(self.verdict)
        raised = raised_findings(before, self.logged)
        self.findings_raised.update((finding.check, finding.health) for finding in raised)
        is_changed = log_transitions(before, self.logged)
        if self._on_verdict is not None:
            self._on_verdict(self.verdict, now, is_changed)
        self.evaluation_seconds = time.perf_counter() - began


def _has_news(reading: Reading) -> bool:
    """Return whether a reading has more than a new position in the kernel log."""
    return not reading.complete or any(
        observation.events or observation.unreadable or observation.signals.keys() != {LOG_POSITION}
        for observation in reading.observations
    )


def source_ages(read_at: Mapping[str, float], now: float) -> dict[str, float]:
    """Return the seconds since each source was read. read_at: when that was, by source."""
    return {name: now - at for name, at in read_at.items()}
