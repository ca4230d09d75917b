"""The registry of all signals: of sources, of derivation, of log patterns, and of the agent."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from nodeguard.derive.signals import SIGNALS
from nodeguard.model.catalogue import LogPattern
from nodeguard.model.observation import DERIVED
from nodeguard.model.signal import Signal
from nodeguard.pipeline.agent_signals import SIGNALS as AGENT_SIGNALS
from nodeguard.pipeline.agent_signals import SOURCE
from nodeguard.sources.kmsg import KmsgSource
from nodeguard.sources.kmsg import pattern_signals as log_signals
from nodeguard.sources.registry import SOURCES


def all_signals(patterns: Iterable[LogPattern]) -> dict[str, Signal]:
    """Return every signal by name.

    An event that several sources report, such as an Xid, has the declaration of the kernel log. Raises
    ValueError if any other signal is declared twice.
    """
    registry: dict[str, Signal] = {}
    declared = (
        *((source.name, source.signals) for source in SOURCES),
        (DERIVED, SIGNALS),
        (KmsgSource.name, log_signals(patterns)),
        (SOURCE, AGENT_SIGNALS),
    )
    for source, signals in declared:
        for name, signal in signals.items():
            other = registry.get(name)
            if other is not None and not other.kind == signal.kind == "event":
                raise ValueError(f"{name} is declared twice: rename one of them")
            registry[name] = replace(signal, source=source)
    return registry
