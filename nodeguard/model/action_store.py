"""The store of actions: the durable record that each action has before anything is started."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from nodeguard.model.action import NodeAction


class ActionStoreError(Exception):
    """A change of the store failed, or its response was lost. The message has the reason and the remedy."""


class ActionStore(Protocol):
    """Stores actions by their key. Each change is compared with what is stored: of two processes that make
    one, one succeeds. The methods raise ActionStoreError; each may be repeated.
    """

    def is_synced(self) -> bool:
        """Return whether all stored actions are read."""

    def problem(self) -> str:
        """Return why no action can be stored, with the remedy; empty if nothing is known to be wrong."""

    def actions(self) -> Collection[NodeAction]:
        """Return all actions, as they were stored last as far as is known here."""

    async def reserve(self, action: NodeAction) -> None:
        """Create an action; an existing one stays as it is. Returns once it is durable."""

    async def advance(self, before: NodeAction, after: NodeAction) -> None:
        """Replace an action, unless it is no longer as before: then only read it again."""

    async def refresh(self) -> None:
        """Read all actions as they are stored now."""

    async def delete(self, action: NodeAction) -> None:
        """Delete an action, unless it is no longer as given."""
