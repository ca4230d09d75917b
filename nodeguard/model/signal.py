"""Signals: the quantities that sources read and that checks judge."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Scalar = bool | int | float | str

SignalKind = Literal["gauge", "counter", "state", "event"]


class Signal(Struct, frozen=True):
    """One quantity.

    name: dotted, the part it belongs to first: `gpu.row_remap.failed`.
    kind: `gauge` goes up and down, `counter` only up, `state` is one of a few words, numbers or truths,
        `event` happened at a moment and carries fields.
    unit: as Prometheus writes it (`celsius`, `seconds`, `bytes`, `ratio`), empty for a plain number.
    bits: width of a counter that stops at its maximum instead of wrapping; 0 where it does not.
    fields: names of an event's fields.
    source: name of the source that reads it; empty until all signals are known, see agent.signals.
    """

    name: str
    kind: SignalKind
    description: str
    unit: str = ""
    bits: int = 0
    fields: tuple[str, ...] = ()
    source: str = ""


def signals_by_name(*signals: Signal) -> dict[str, Signal]:
    """Signals by name. Raises ValueError where a name stands twice."""
    table = {signal.name: signal for signal in signals}
    if len(table) != len(signals):
        raise ValueError("a signal is declared twice")
    return table
