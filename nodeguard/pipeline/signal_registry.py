"""All signals that exist: what sources read, what derivation adds, what the log patterns make, and the
agent's own.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from nodeguard.derive.signals import SIGNALS
from nodeguard.model.catalogue import LogPattern
from nodeguard.model.observation import DERIVED
from nodeguard.model.signal import Signal
from nodeguard.pipeline.agent_signals import SIGNALS as OWN
from nodeguard.pipeline.agent_signals import SOURCE
from nodeguard.sources.kmsg import KmsgSource
from nodeguard.sources.kmsg import pattern_signals as logged
from nodeguard.sources.registry import SOURCES


def all_signals(patterns: Iterable[LogPattern]) -> dict[str, Signal]:
    """Every signal by name.

    Of an event that several tell of, such as an Xid's line, what the log says of it counts. Raises ValueError
    where anything else is declared twice.
    """
    found: dict[str, Signal] = {}
    declared = (
        *((source.name, source.signals) for source in SOURCES),
        (DERIVED, SIGNALS),
        (KmsgSource.name, logged(patterns)),
        (SOURCE, OWN),
    )
    for source, signals in declared:
        for name, signal in signals.items():
            other = found.get(name)
            if other is not None and not other.kind == signal.kind == "event":
                raise ValueError(f"{name} is declared twice: rename one of them")
            found[name] = replace(signal, source=source)
    return found
