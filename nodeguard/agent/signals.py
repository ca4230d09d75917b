"""All signals that exist: what sources read, what derivation adds, what the log patterns make, and the
agent's own.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from nodeguard.agent.own import SIGNALS as OWN
from nodeguard.agent.own import SOURCE
from nodeguard.derive.signals import SIGNALS
from nodeguard.model.catalogue import LogPattern
from nodeguard.model.observation import DERIVED
from nodeguard.model.signal import Signal
from nodeguard.sources.every import SOURCES
from nodeguard.sources.kmsg import Kmsg
from nodeguard.sources.kmsg import signals as logged


def known(patterns: Iterable[LogPattern]) -> dict[str, Signal]:
    """Every signal by name.

    Of an event that several tell of, such as an Xid's line, what the log says of it counts. Raises ValueError
    where anything else is declared twice.
    """
    found: dict[str, Signal] = {}
    declared = (
        *((source.name, source.signals) for source in SOURCES),
        (DERIVED, SIGNALS),
        (Kmsg.name, logged(patterns)),
        (SOURCE, OWN),
    )
    for source, signals in declared:
        for name, signal in signals.items():
            other = found.get(name)
            if other is not None and not other.kind == signal.kind == "event":
                raise ValueError(f"{name} is declared twice: rename one of them")
            found[name] = replace(signal, source=source)
    return found
