"""The signals of the agent about its own state file: one more source, which reads nothing. Pure."""

from __future__ import annotations

from nodeguard.model.observation import Observation, Reading
from nodeguard.model.signal import Scalar, Signal, signals_by_name
from nodeguard.model.target import NODE

SOURCE = "agent"
SIGNALS = signals_by_name(
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
    return Reading(SOURCE, now, (Observation(SOURCE, NODE, signals=signals),))
