"""The agent: sources read at their own pace, each batch judged once, and the verdict kept for who asks."""

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

# Seconds by which a sum of moments may miss one of them.
_ROUNDING = 1e-3


class SourceSchedule:
    """The rounds of some sources, each at its own interval; those of a long one with those of a shorter one
    that it is a multiple of, since what is read together is judged once.

    offset: a part of the shortest interval, from 0 to 1, by which the node's rounds are late: jitter, so that
    no two nodes keep time. Times are seconds of one clock that never jumps.
    """

    def __init__(self, sources: Sequence[Source], offset: float) -> None:
        self._sources = tuple(sources)
        self._late = offset * min((one.interval for one in sources), default=0.0)
        self._due: dict[str, float] = {}

    def due(self, now: float) -> list[Source]:
        """Sources to be read now; all of them the first time. What was missed is not made up for."""
        wanted = [one for one in self._sources if self._due.get(one.name, now) <= now]
        for one in wanted:
            past = (now - self._late + _ROUNDING) // one.interval
            self._due[one.name] = (past + 1) * one.interval + self._late
        return wanted

    def next(self) -> float:
        """When something is due again; infinity where there is nothing to read."""
        return min(self._due.values(), default=inf)


def source_ages(ended: Mapping[str, float], now: float) -> dict[str, float]:
    """Seconds since each source's latest round. ended: when that was, by source."""
    return {name: now - at for name, at in ended.items()}


# Readings that end within this time are judged together (seconds): sources of one interval are read side by
# side, and one that is slow must not keep the others waiting.
_TOGETHER = 0.2

# Is given each verdict, when it was reached, and whether the log has a line of it.
OnVerdict = Callable[[Verdict, Instant, bool], None]


class Agent:
    """Reads and judges one node until it is told to stop.

    log: takes a line for each thing that changes. offset: see Agenda. speed: how many times as fast as the
    clock the machine's own goes. before: what the log has said before this agent began.

    heed: is to be set before it runs. verdict: the latest, None before the first; rounds: how often it has
    judged. latest: of each source's readings. told: what the log has said.
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
        self._judgement = pipeline
        self._log = log
        self._reader = AsyncReader(machine)
        self._agenda = SourceSchedule(sources, offset)
        self.speed = speed
        self._heard: list[Reading] = []
        self._busy: set[str] = set()
        self._judging: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopped = asyncio.Event()
        self._erred = ""
        self.on_verdict: OnVerdict = lambda verdict, instant, changed: None  # noqa: ARG005 - nobody heeds yet
        self.verdict: Verdict | None = None
        self.evaluations = 0
        self.latest: dict[str, Reading] = {}
        self.logged = logged

    async def run(self) -> None:
        """Read and judge until `stop`; the readings that have come by then are judged."""
        loop = asyncio.get_running_loop()
        while not self._stopped.is_set():
            for source in self._agenda.due(loop.time() * self.speed):
                self.read(source.name)
            try:
                async with asyncio.timeout_at(self._agenda.next() / self.speed):
                    await self._stopped.wait()
            except TimeoutError:
                continue
        for task in self._tasks:
            task.cancel()
        if self._heard:
            self.evaluate()

    def now(self) -> Instant:
        """This moment on the machine."""
        return self._machine.now()

    def stop(self) -> None:
        """End, at once."""
        self._stopped.set()

    def read(self, name: str, together: float = _TOGETHER) -> None:
        """Begin a round of a source, unless one is under way; judge it so many seconds after its end."""
        if name in self._busy:
            return
        self._busy.add(name)
        task = asyncio.get_running_loop().create_task(self._round(self._sources[name], together))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def has_source(self, name: str) -> bool:
        """Whether a source of this name is read."""
        return name in self._sources

    def is_reading(self, name: str) -> bool:
        """Whether a round of a source is under way."""
        return name in self._busy

    def ages(self) -> dict[str, float]:
        """Seconds since each source was read."""
        ended = {name: one.at for name, one in self.latest.items() if name in self._sources}
        return source_ages(ended, self._machine.now().mono)

    def unread_sources(self) -> Iterator[str]:
        """Sources of which no round has ended yet."""
        return (name for name in self._sources if name not in self.latest)

    def add_reading(self, reading: Reading, together: float = _TOGETHER) -> None:
        """Take a reading; judge it so many seconds later, with those that come until then."""
        self._heard.append(reading)
        self.latest[reading.source] = reading
        loop = asyncio.get_running_loop()
        # At the start all sources are read, and of one alone nothing is to be concluded.
        together = together if self.evaluations else _TOGETHER
        if self._judging is None or loop.time() + together < self._judging.when():
            if self._judging is not None:
                self._judging.cancel()
            self._judging = loop.call_later(together, self.evaluate)

    async def _round(self, source: Source, together: float) -> None:
        try:
            reading = await self._reader.read_one(source)
        finally:
            self._busy.discard(source.name)
        self.add_reading(reading, together)

    def evaluate(self) -> None:
        """Judge now what was heard since the last time, which may be nothing."""
        if self._judging is not None:
            self._judging.cancel()
        self._judging, heard, self._heard = None, self._heard, []
        now = self._machine.now()
        try:
            self.verdict = self._judgement.evaluate(heard, now)
        except Exception as error:  # noqa: BLE001 - a node has to be watched on
            why = f"please report it: {type(error).__name__}: {error}"
            if why != self._erred:
                self._log({"event": "error", "why": why})
            self._erred = why
            if self.verdict is not None:
                self.verdict = replace(self.verdict, knowledge=DataStatus.UNKNOWN)
            return
        self._erred = ""
        self.evaluations += 1
        before, self.logged = self.logged, logged_verdict(self.verdict)
        lines = list(transitions(before, self.logged))
        for line in lines:
            self._log(line)
        self.on_verdict(self.verdict, now, bool(lines))
