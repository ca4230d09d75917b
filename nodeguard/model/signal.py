"""Signals: the quantities that sources read and that checks evaluate."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Scalar = bool | int | float | str

SignalKind = Literal["gauge", "counter", "state", "event"]


class Signal(Struct, frozen=True):
    """One quantity.

    name: dotted, the component first: `gpu.row_remap.failed`.
    kind: `gauge` goes up and down, `counter` only up, `state` is one of a few words, numbers or
        booleans, `event` occurs at a time and has fields.
    unit: as in Prometheus (`celsius`, `seconds`, `bytes`, `ratio`), empty for a plain number.
    bits: width of a counter that stops at its maximum instead of wrapping; 0 if it wraps.
    max_rate: the most that a counter can rise in a second, by what it counts; 0 if it has no such limit.
    fields: names of an event's fields.
    source: name of the source that reads it; empty until all signals are registered.
    """

    name: str
    kind: SignalKind
    description: str
    unit: str = ""
    bits: int = 0
    max_rate: float = 0.0
    fields: tuple[str, ...] = ()
    source: str = ""


def signals_by_name(*signals: Signal) -> dict[str, Signal]:
    """Return signals by name. Raises ValueError if two have one name."""
    table = {signal.name: signal for signal in signals}
    if len(table) != len(signals):
        raise ValueError("a signal is declared twice")
    return table
