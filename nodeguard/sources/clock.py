"""Source `clock`: whether the system clock is synchronized, its offset, and the kernel's clock source."""

from __future__ import annotations

from collections.abc import Iterator

from nodeguard.model.observation import Observation
from nodeguard.model.signal import Signal, signals_by_name
from nodeguard.model.target import NODE
from nodeguard.sources.machine import Machine
from nodeguard.sources.readings import ObservationDraft, failure_reason, implausible, parse_line, try_read
from nodeguard.sources.source import source

_SOURCE = "/sys/devices/system/clocksource/clocksource0/current_clocksource"

# Linux include/uapi/linux/timex.h
_STA_UNSYNC = 0x40

# Signal → field of the result of adjtimex.
_FIELDS = {"clock.synchronized": "status", "clock.offset": "offset_us", "clock.max_error": "maxerror_us"}


@source
class ClockSource:
    """Calls adjtimex and reads the clock source; one observation, of the node."""

    name = "clock"
    interval = 60.0
    deadline = 5.0
    paths: tuple[str, ...] = ("call:adjtimex", "/sys/devices/system/clocksource")
    signals = signals_by_name(
        Signal(
            "clock.synchronized", "state", "whether a time service keeps the clock: STA_UNSYNC is not set"
        ),
        Signal("clock.offset", "gauge", "offset that the kernel still has to correct", "seconds"),
        Signal("clock.max_error", "gauge", "largest error that the time service thinks possible", "seconds"),
        Signal("clock.source", "state", "the kernel's clock source, such as tsc"),
    )

    def read(self, machine: Machine) -> Iterator[Observation]:
        """Read once; see Source.read."""
        draft = ObservationDraft(machine, self.name, NODE)
        answer = try_read(machine.call, "adjtimex")
        if isinstance(answer, OSError):
            draft.mark_unread(failure_reason(answer), *_FIELDS)
        elif answer is not None:
            for signal, field in _FIELDS.items():
                value = answer.get(field)
                if not isinstance(value, int):
                    draft.mark_unread(implausible(f"adjtimex: {field}", value), signal)
                else:
                    draft.signals[signal] = not value & _STA_UNSYNC if field == "status" else value / 1e6
        draft.read("clock.source", _SOURCE, parse_line)
        yield draft.build()
