"""The reading of sources: each within its deadline, none delayed by another, and no exception from any."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from queue import SimpleQueue

from nodeguard.model.failure import UnansweredError
from nodeguard.model.observation import Observation, Reading
from nodeguard.model.target import NODE
from nodeguard.sources.machine import BoundedMachine, Machine
from nodeguard.sources.readings import failure_reason
from nodeguard.sources.source import Source

# Readings of a source that may be missed before its observations are no longer valid.
_MISSED = 3


def read_source(source: Source, machine: Machine) -> Reading:
    """Return a reading of one source, in this thread. The reading contains the failed reads too."""
    observations: list[Observation] = []
    began = machine.now().mono
    _read_into(observations, source, machine)
    return build_reading(source, machine, observations, began)


def _read_into(observations: list[Observation], source: Source, machine: Machine) -> None:
    try:
        observations.extend(source.read(machine))
    except OSError as error:
        path = f"{error.filename}: " if error.filename else ""
        observations.append(Observation(source.name, NODE, "failed", detail=path + failure_reason(error)))
    except UnansweredError as error:
        observations.append(Observation(source.name, NODE, "hung", detail=f"{error.detail} gave no answer"))
    except Exception as error:  # noqa: BLE001 - a source that fails must not affect the others
        detail = f"error in the source itself, please report it: {type(error).__name__}: {error}"
        observations.append(Observation(source.name, NODE, "failed", detail=detail))


def build_reading(
    source: Source, machine: Machine, observations: Iterable[Observation], began: float
) -> Reading:
    """Return the reading that began at a time (seconds since boot) and ends now."""
    seen = tuple(observations)
    is_cut = any(
        observation.target == NODE and observation.status in {"failed", "hung", "detached"}
        for observation in seen
    )
    now = machine.now().mono
    valid = _MISSED * source.interval + source.deadline
    return Reading(source.name, now, seen, not is_cut, now - began, valid)


def _ignore() -> None:
    pass


class ReadingThreads:
    """Runs each piece of work in a thread of its own; one thread waits for the next piece of work.

    The start of a thread costs about as much as the reading of ten log lines.
    """

    def __init__(self) -> None:
        self._waiting: list[SimpleQueue[Callable[[], None]]] = []

    def run(self, name: str, work: Callable[[], None]) -> None:
        """Start work that raises no exception, in a thread that has this name meanwhile.

        Raises RuntimeError if no thread can be started.
        """

        def named_work() -> None:
            thread = threading.current_thread()
            thread.name = name
            work()
            thread.name = "waiting reader"

        try:
            queue = self._waiting.pop()
        except IndexError:
            queue = SimpleQueue()
            threading.Thread(target=self._serve, args=(queue,), name=name, daemon=True).start()
        queue.put(named_work)

    def _serve(self, queue: SimpleQueue[Callable[[], None]]) -> None:
        queue.get()()
        while not self._waiting:
            self._waiting.append(queue)
            queue.get()()


class Reader:
    """Reads the sources of a live machine in parallel, each in a thread of its own.

    The workers of a source end early enough for it to return its partial readings. A source that exceeds
    its deadline nevertheless counts as hung, and is not read again until that reading ends: so at most one
    thread waits for each source.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._threads = ReadingThreads()
        # The end of each reading that exceeded its deadline.
        self._late: dict[str, threading.Event] = {}

    def read(self, sources: Iterable[Source], within: float, through: Machine | None = None) -> list[Reading]:
        """Return one reading of each source.

        within: seconds for each of them, besides its own deadline. through: a wrapper of the machine to read
        this time.
        """
        began = self._machine.now().mono
        started = [(source, *self._start(source, within, through or self._machine)) for source in sources]
        readings = []
        for source, end, observations in started:
            limit = min(source.deadline, within)
            if end is not None and end.wait(max(0.0, began + limit - self._machine.now().mono)):
                readings.append(build_reading(source, self._machine, observations, began))
                continue
            if end is not None:
                self._late[source.name] = end
            hung = Observation(source.name, NODE, "hung", detail=f"gave no answer within {limit:g} s")
            readings.append(build_reading(source, self._machine, [*observations, hung], began))
        return readings

    def is_late(self, source: str) -> bool:
        """Return whether the last reading of a source exceeded its deadline and may still run."""
        return source in self._late

    def _start(
        self, source: Source, within: float, through: Machine, ended: Callable[[], None] = _ignore
    ) -> tuple[threading.Event | None, list[Observation]]:
        """Start a reading. Return its end, None while an earlier one is late, and its observations so far."""
        observations: list[Observation] = []
        late = self._late.get(source.name)
        if late is not None and not late.is_set():
            return None, observations
        self._late.pop(source.name, None)
        machine = BoundedMachine(through, min(source.deadline, within))
        end = threading.Event()

        def run() -> None:
            _read_into(observations, source, machine)
            end.set()
            ended()

        self._threads.run(source.name, run)
        return end, observations
