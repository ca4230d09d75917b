"""What people are told who say that an incident is over. Pure."""

from __future__ import annotations


def said_of(name: str, *, of_many: bool) -> str:
    """What becomes of it. name: of the incident; of_many: whether it is of a domain, or of a check."""
    if of_many:
        return (
            f"{name} is cleared: what begins from now on counts anew, and each sick node is marked for itself"
        )
    return f"{name} is to be cleared: its agent is told, and a mark goes when its check finds all in order"
