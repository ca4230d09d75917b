"""What people may decide, and who carries it out."""

from __future__ import annotations

from typing import Protocol


class OperatorActionError(Exception):
    """Something that was not done. Its text is a sentence that says why, and what to do."""


class OperatorActions(Protocol):
    """Carries decisions out. Each returns, once it is durable, a sentence that says what was done. by: who
    decided. Each raises DecisionError.
    """

    async def pause(self, why: str, by: str) -> str:
        """Mark nothing new."""

    async def resume(self, by: str) -> str:
        """End a pause."""

    async def unmark(self, by: str) -> str:
        """Pause, and take away every mark of nodeguard's."""

    async def acknowledge(self, name: str, by: str) -> str:
        """An incident is known of."""

    async def clear(self, name: str, by: str) -> str:
        """An incident is over."""


def clear_message(name: str, *, of_many: bool) -> str:
    """Return what is done about a clear. name: the incident's; of_many: whether a domain's or a check's."""
    if of_many:
        return (
            f"{name} is cleared: what begins from now on counts anew, and each sick node is marked for itself"
        )
    return f"the node's agent is asked to clear {name}; nodeguard describe incident {name} shows its answer"


def format_pause_reason(why: str, by: str) -> str:
    """Return the reason of a pause, as every withheld mark shows it: `paused by alice: a bad driver`."""
    who = f"paused by {by}" if by else "paused"
    return f"{who}: {why}" if why else who
