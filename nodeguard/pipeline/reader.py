"""Reading sources: each to its deadline, none delayed by another, and never an exception out of one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from nodeguard.model.failure import UnansweredError
from nodeguard.model.observation import Observation, Reading
from nodeguard.model.target import NODE
from nodeguard.sources.machine import BoundedMachine, Machine
from nodeguard.sources.readings import failure_reason
from nodeguard.sources.source import Source

# Rounds of a source that may be missing before what it read no longer counts as known.
_MISSED = 3


def read_source(source: Source, machine: Machine) -> Reading:
    """One round of one source, here and now. What it cannot read is part of the answer."""
    observations: list[Observation] = []
    began = machine.now().mono
    _read_into(observations, source, machine)
    return build_reading(source, machine, observations, began)


def _read_into(observations: list[Observation], source: Source, machine: Machine) -> None:
    try:
        observations.extend(source.read(machine))
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        observations.append(Observation(source.name, NODE, "failed", detail=where + failure_reason(error)))
    except UnansweredError as error:
        observations.append(Observation(source.name, NODE, "hung", detail=f"{error.detail} gave no answer"))
    except Exception as error:  # noqa: BLE001 - a source that errs must not take the others with it
        detail = f"error in the source itself, please report it: {type(error).__name__}: {error}"
        observations.append(Observation(source.name, NODE, "failed", detail=detail))


def build_reading(
    source: Source, machine: Machine, observations: Iterable[Observation], began: float
) -> Reading:
    """What a round that began then (seconds since boot) and ends now has come to."""
    known = tuple(observations)
    cut = any(one.target == NODE and one.status in {"failed", "hung", "released"} for one in known)
    now = machine.now().mono
    return Reading(source.name, now, known, not cut, now - began, _MISSED * source.interval + source.deadline)


def _nothing() -> None:
    pass


class Reader:
    """Reads sources of a live machine side by side, each in a thread of its own.

    The lanes that a source waits for end in time to tell what they have read. A source that overstays its
    deadline all the same is told of as hung and left to itself; until it comes back it is not
    read again, so that no more than one thread of it ever waits.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._late: dict[str, threading.Thread] = {}

    def read(self, sources: Iterable[Source], within: float, through: Machine | None = None) -> list[Reading]:
        """One round of some sources.

        within: seconds that any of them may take at most, whatever its deadline. through: the machine in
        another guise, to be read this once.
        """
        began = self._machine.now().mono
        started = [(source, *self._start(source, within, through or self._machine)) for source in sources]
        result = []
        for source, thread, observations in started:
            limit = min(source.deadline, within)
            if thread is not None:
                thread.join(max(0.0, began + limit - self._machine.now().mono))
            if thread is None or thread.is_alive():
                if thread is not None:
                    self._late[source.name] = thread
                detail = f"gave no answer within {limit:g} s"
                hung = Observation(source.name, NODE, "hung", detail=detail)
                result.append(build_reading(source, self._machine, [*observations, hung], began))
            else:
                result.append(build_reading(source, self._machine, observations, began))
        return result

    def is_late(self, source: str) -> bool:
        """Whether the last round of a source has overstayed its deadline and may go on still."""
        return source in self._late

    def _start(
        self, source: Source, within: float, through: Machine, ended: Callable[[], None] = _nothing
    ) -> tuple[threading.Thread | None, list[Observation]]:
        observations: list[Observation] = []
        late = self._late.get(source.name)
        if late is not None and late.is_alive():
            return None, observations
        self._late.pop(source.name, None)
        machine = BoundedMachine(through, min(source.deadline, within))

        def run() -> None:
            _read_into(observations, source, machine)
            ended()

        thread = threading.Thread(target=run, name=source.name, daemon=True)
        thread.start()
        return thread, observations
