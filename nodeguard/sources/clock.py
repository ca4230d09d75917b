"""The clock: whether the kernel knows it to be synchronised, and what it runs on."""

from __future__ import annotations

from collections.abc import Iterator

from nodeguard.model.observation import Observation
from nodeguard.model.signal import Signal, named
from nodeguard.model.slot import NODE
from nodeguard.sources.machine import Machine
from nodeguard.sources.readings import Draft, attempt, reason, senseless, word

_SOURCE = "/sys/devices/system/clocksource/clocksource0/current_clocksource"

# Linux include/uapi/linux/timex.h
_STA_UNSYNC = 0x40

# Signal → field of adjtimex's answer.
_FIELDS = {"clock.synchronized": "status", "clock.offset": "offset_us", "clock.max_error": "maxerror_us"}


class Clock:
    """Asks adjtimex and reads the clock source; one observation, of the node."""

    name = "clock"
    interval = 60.0
    deadline = 5.0
    paths: tuple[str, ...] = ("call:adjtimex", "/sys/devices/system/clocksource")
    signals = named(
        Signal(
            "clock.synchronized", "state", "whether a time service keeps the clock: STA_UNSYNC is not set"
        ),
        Signal("clock.offset", "gauge", "offset that the kernel still has to correct", "seconds"),
        Signal("clock.max_error", "gauge", "largest error that the time service thinks possible", "seconds"),
        Signal("clock.source", "state", "the kernel's clock source, such as tsc"),
    )

    def read(self, machine: Machine) -> Iterator[Observation]:
        """One round; see Source.read."""
        draft = Draft(machine, self.name, NODE)
        answer = attempt(machine.call, "adjtimex")
        if isinstance(answer, OSError):
            draft.refuse(reason(answer), *_FIELDS)
        elif answer is not None:
            for signal, field in _FIELDS.items():
                value = answer.get(field)
                if not isinstance(value, int):
                    draft.refuse(senseless(f"adjtimex: {field}", value), signal)
                else:
                    draft.signals[signal] = not value & _STA_UNSYNC if field == "status" else value / 1e6
        draft.take("clock.source", _SOURCE, word)
        yield draft.observation()
