"""What people may decide, and who carries it out."""

from __future__ import annotations

from typing import Protocol


class DecisionError(Exception):
    """Something that was not done. Its text is a sentence that says why, and what to do."""


class Decide(Protocol):
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
