"""All signals that exist: what sources read, what derivation adds, and what the log patterns make."""

from __future__ import annotations

from collections.abc import Iterable

from nodeguard.derive.signals import SIGNALS
from nodeguard.model.catalogue import LogPattern
from nodeguard.model.signal import Signal
from nodeguard.sources.every import SOURCES
from nodeguard.sources.kmsg import signals as logged


def known(patterns: Iterable[LogPattern]) -> dict[str, Signal]:
    """Every signal by name. Raises ValueError where two rooms declare one name."""
    found: dict[str, Signal] = {}
    for signals in (*(source.signals for source in SOURCES), SIGNALS, logged(patterns)):
        found.update(signals)
    return found


def event_sources(signals: Iterable[Signal]) -> dict[str, str]:
    """For each event, the source whose silence means that it did not happen: the kernel log for all."""
    return {signal.name: "kmsg" for signal in signals if signal.kind == "event"}
