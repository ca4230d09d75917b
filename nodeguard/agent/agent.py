"""The agent: sources read at their own pace, each batch judged once, and the verdict kept for who asks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from nodeguard.agent.agenda import Agenda, ages
from nodeguard.agent.judgement import Judgement
from nodeguard.agent.rounds import Rounds
from nodeguard.agent.transitions import Line, Told, told, transitions
from nodeguard.model.finding import Knowledge, Verdict
from nodeguard.model.instant import Instant
from nodeguard.model.observation import Reading
from nodeguard.sources.machine import Machine
from nodeguard.sources.source import Source

# Readings that end within this time are judged together (seconds): sources of one interval are read side by
# side, and one that is slow must not keep the others waiting.
_TOGETHER = 0.2

# Is given each verdict, when it was reached, and whether the log has a line of it.
Heed = Callable[[Verdict, Instant, bool], None]


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
        judgement: Judgement,
        log: Callable[[Line], None],
        offset: float,
        speed: float = 1.0,
        before: Told | None = None,
    ) -> None:
        self._machine = machine
        self._sources = {source.name: source for source in sources}
        self._judgement = judgement
        self._log = log
        self._reader = Rounds(machine)
        self._agenda = Agenda(sources, offset)
        self.speed = speed
        self._heard: list[Reading] = []
        self._busy: set[str] = set()
        self._judging: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopped = asyncio.Event()
        self._erred = ""
        self.heed: Heed = lambda verdict, instant, changed: None  # noqa: ARG005 - nobody heeds yet
        self.verdict: Verdict | None = None
        self.rounds = 0
        self.latest: dict[str, Reading] = {}
        self.told = before

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
            self.judge()

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

    def has(self, name: str) -> bool:
        """Whether a source of this name is read."""
        return name in self._sources

    def is_reading(self, name: str) -> bool:
        """Whether a round of a source is under way."""
        return name in self._busy

    def ages(self) -> dict[str, float]:
        """Seconds since each source was read."""
        ended = {name: one.at for name, one in self.latest.items() if name in self._sources}
        return ages(ended, self._machine.now().mono)

    def unheard(self) -> Iterator[str]:
        """Sources of which no round has ended yet."""
        return (name for name in self._sources if name not in self.latest)

    def hear(self, reading: Reading, together: float = _TOGETHER) -> None:
        """Take a reading; judge it so many seconds later, with those that come until then."""
        self._heard.append(reading)
        self.latest[reading.source] = reading
        loop = asyncio.get_running_loop()
        # At the start all sources are read, and of one alone nothing is to be concluded.
        together = together if self.rounds else _TOGETHER
        if self._judging is None or loop.time() + together < self._judging.when():
            if self._judging is not None:
                self._judging.cancel()
            self._judging = loop.call_later(together, self.judge)

    async def _round(self, source: Source, together: float) -> None:
        try:
            reading = await self._reader.round(source)
        finally:
            self._busy.discard(source.name)
        self.hear(reading, together)

    def judge(self) -> None:
        """Judge now what was heard since the last time, which may be nothing."""
        if self._judging is not None:
            self._judging.cancel()
        self._judging, heard, self._heard = None, self._heard, []
        now = self._machine.now()
        try:
            self.verdict = self._judgement.judge(heard, now)
        except Exception as error:  # noqa: BLE001 - a node has to be watched on
            why = f"please report it: {type(error).__name__}: {error}"
            if why != self._erred:
                self._log({"event": "error", "why": why})
            self._erred = why
            if self.verdict is not None:
                self.verdict = replace(self.verdict, knowledge=Knowledge.UNKNOWN)
            return
        self._erred = ""
        self.rounds += 1
        before, self.told = self.told, told(self.verdict)
        lines = list(transitions(before, self.told))
        for line in lines:
            self._log(line)
        self.heed(self.verdict, now, bool(lines))
