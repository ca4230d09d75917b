"""The words of what people decide: a pause, and that an incident is over. Pure."""

from __future__ import annotations


def said_of(name: str, *, of_many: bool) -> str:
    """What becomes of it. name: of the incident; of_many: whether it is of a domain, or of a check."""
    if of_many:
        return (
            f"{name} is cleared: what begins from now on counts anew, and each sick node is marked for itself"
        )
    return f"{name} is to be cleared: its agent is told, and a mark goes when its check finds all in order"


def pause_reason(why: str, by: str) -> str:
    """Return the reason of a pause, as every withheld mark shows it: `paused by alice: a bad driver`."""
    who = f"paused by {by}" if by else "paused"
    return f"{who}: {why}" if why else who
