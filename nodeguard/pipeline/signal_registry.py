"""The registry of all signals: of sources, derivation and log patterns, and of the agent's own state file."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from nodeguard.derive.signals import SIGNALS as DERIVED_SIGNALS
from nodeguard.model.catalogue import LogPattern
from nodeguard.model.observation import DERIVED, Observation, Reading
from nodeguard.model.signal import Scalar, Signal, signals_by_name
from nodeguard.model.target import NODE
from nodeguard.sources.kmsg import KmsgSource
from nodeguard.sources.kmsg import pattern_signals as log_signals
from nodeguard.sources.registry import SOURCES

AGENT_SOURCE = "agent"
AGENT_SIGNALS = signals_by_name(
    Signal("agent.state_saved", "state", "whether the agent's state is on a disk"),
    Signal("agent.state_save_error", "state", "reason why the state is not on a disk, or `none`"),
    Signal(
        "agent.state_load_error", "state", "reason why an earlier state was unusable, or `none`; for a day"
    ),
)


def agent_reading(now: float, save_error: str, load_error: str = "") -> Reading:
    """Return a reading of the agent itself, at a number of seconds since boot.

    save_error: why the state is not on a disk. load_error: why an earlier state could not be used. Both are
    empty without an error.
    """
    signals: dict[str, Scalar] = {
        "agent.state_saved": not save_error,
        "agent.state_save_error": save_error or "none",
        "agent.state_load_error": load_error or "none",
    }
    return Reading(AGENT_SOURCE, now, (Observation(AGENT_SOURCE, NODE, signals=signals),))


def all_signals(patterns: Iterable[LogPattern]) -> dict[str, Signal]:
    """Return every signal by name.

    An event that several sources report, such as an Xid, has the declaration of the kernel log. Raises
    ValueError if any other signal is declared twice.
    """
    registry: dict[str, Signal] = {}
    declared = (
        *((source.name, source.signals) for source in SOURCES),
        (DERIVED, DERIVED_SIGNALS),
        (KmsgSource.name, log_signals(patterns)),
        (AGENT_SOURCE, AGENT_SIGNALS),
    )
    for source, signals in declared:
        for name, signal in signals.items():
            other = registry.get(name)
            if other is not None and not other.kind == signal.kind == "event":
                raise ValueError(f"{name} is declared twice: rename one of them")
            registry[name] = replace(signal, source=source)
    return registry
