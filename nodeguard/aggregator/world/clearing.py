"""The words of what people decide: a pause, and a clear of an incident. Pure."""

from __future__ import annotations


def said_of(name: str, *, of_many: bool) -> str:
    """Return what is done about a clear. name: the incident's; of_many: whether a domain's or a check's."""
    if of_many:
        return (
            f"{name} is cleared: what begins from now on counts anew, and each sick node is marked for itself"
        )
    return f"the node's agent is asked to clear {name}; nodeguard explain incident {name} shows its answer"


def pause_reason(why: str, by: str) -> str:
    """Return the reason of a pause, as every withheld mark shows it: `paused by alice: a bad driver`."""
    who = f"paused by {by}" if by else "paused"
    return f"{who}: {why}" if why else who
