"""The agent's loop: read each source at its interval, evaluate the readings together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf

from msgspec.structs import replace

from nodeguard.agent.transitions import LoggedVerdict, LogLine, logged_verdict, transitions
from nodeguard.model.finding import DataStatus, Verdict
from nodeguard.model.instant import Instant
from nodeguard.model.observation import Reading
from nodeguard.pipeline.async_reader import AsyncReader
from nodeguard.pipeline.pipeline import Pipeline
from nodeguard.sources.machine import Machine
from nodeguard.sources.source import Source

# Seconds by which a sum of intervals may miss a due time.
_ROUNDING = 1e-3

# Readings that end within this time (seconds) are evaluated together: sources of one interval are read in
# parallel, and a slow one must not delay the others.
_TOGETHER = 0.2

# Called with each verdict, its time, and whether the log has a line about it.
OnVerdict = Callable[[Verdict, Instant, bool], None]


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

    log: takes a line for each change. offset: see SourceSchedule. speed: seconds of the machine in one of the
    clock's. logged: the verdict that the log shows from before a restart.

    on_verdict: set before it runs. verdict: the latest, None before the first. evaluations: how many there
    were. latest: the latest reading of each source.
    """

    def __init__(
        self,
        machine: Machine,
        sources: Sequence[Source],
        pipeline: Pipeline,
        log: Callable[[LogLine], None],
        offset: float,
        speed: float = 1.0,
        logged: LoggedVerdict | None = None,
    ) -> None:
        self._machine = machine
        self._sources = {source.name: source for source in sources}
        self._pipeline = pipeline
        self._log = log
        self._reader = AsyncReader(machine)
        self._schedule = SourceSchedule(sources, offset)
        self.speed = speed
        self._readings: list[Reading] = []
        self._reading: set[str] = set()
        self._evaluation: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopped = asyncio.Event()
        self._error = ""
        self.on_verdict: OnVerdict = lambda verdict, instant, changed: None  # noqa: ARG005 - replaced by its user
        self.verdict: Verdict | None = None
        self.evaluations = 0
        self.latest: dict[str, Reading] = {}
        self.logged = logged

    async def run(self) -> None:
        """Read and evaluate until `stop`; readings that have ended by then are evaluated."""
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
        # At the start all sources are read, and a single one allows no conclusion.
        together = together if self.evaluations else _TOGETHER
        if self._evaluation is None or loop.time() + together < self._evaluation.when():
            if self._evaluation is not None:
                self._evaluation.cancel()
            self._evaluation = loop.call_later(together, self.evaluate)

    async def _read(self, source: Source, together: float) -> None:
        try:
            reading = await self._reader.read_one(source)
        finally:
            self._reading.discard(source.name)
        self.add_reading(reading, together)

    def evaluate(self) -> None:
        """Evaluate the readings since the last evaluation, of which there may be none."""
        if self._evaluation is not None:
            self._evaluation.cancel()
        self._evaluation, readings, self._readings = None, self._readings, []
        now = self._machine.now()
        try:
            self.verdict = self._pipeline.evaluate(readings, now)
        except Exception as error:  # noqa: BLE001 - the node must stay monitored
            reason = f"please report it: {type(error).__name__}: {error}"
            if reason != self._error:
                self._log({"event": "error", "reason": reason})
            self._error = reason
            if self.verdict is not None:
                self.verdict = replace(self.verdict, data_status=DataStatus.UNKNOWN)
            return
        self._error = ""
        self.evaluations += 1
        before, self.logged = self.logged, logged_verdict(self.verdict)
        lines = list(transitions(before, self.logged))
        for line in lines:
            self._log(line)
        self.on_verdict(self.verdict, now, bool(lines))


def source_ages(read_at: Mapping[str, float], now: float) -> dict[str, float]:
    """Return the seconds since each source was read. read_at: when that was, by source."""
    return {name: now - at for name, at in read_at.items()}
