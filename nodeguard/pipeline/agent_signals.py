"""What the agent tells of itself: one more source, which reads nothing. Pure."""

from __future__ import annotations

from nodeguard.model.observation import Observation, Reading
from nodeguard.model.signal import Scalar, Signal, signals_by_name
from nodeguard.model.target import NODE

SOURCE = "agent"
SIGNALS = signals_by_name(
    Signal("agent.memory_kept", "state", "whether what the agent remembers is on a disk"),
    Signal("agent.memory_trouble", "state", "why it is not on a disk, or `none`"),
    Signal("agent.memory_lost", "state", "why what it remembered could not be used, or `none`; for a day"),
)


def agent_reading(now: float, trouble: str, lost: str = "") -> Reading:
    """A reading of the agent itself, at so many seconds since boot.

    trouble: why its memory is not on a disk; lost: why the one of before could not be used; empty where all
    is well.
    """
    signals: dict[str, Scalar] = {
        "agent.memory_kept": not trouble,
        "agent.memory_trouble": trouble or "none",
        "agent.memory_lost": lost or "none",
    }
    return Reading(SOURCE, now, (Observation(SOURCE, NODE, signals=signals),))
