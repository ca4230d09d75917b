"""The store of actions in standalone mode: the state file, with a write that is awaited."""

from __future__ import annotations

from collections.abc import Callable, Collection

from nodeguard.aggregator.backends.operator_actions import OperatorActionError
from nodeguard.aggregator.backends.standalone_store import StandaloneStore
from nodeguard.model.action import NodeAction
from nodeguard.model.action_store import ActionStoreError


class FileActionStore:
    """See ActionStore. One process uses the file: a lock excludes others. on_changed: is called after each
    change.
    """

    def __init__(self, store: StandaloneStore, on_changed: Callable[[], object]) -> None:
        self._store = store
        self._on_changed = on_changed

    def is_synced(self) -> bool:
        """Return that all actions are read."""
        return True

    def problem(self) -> str:
        """Return that nothing is known to be wrong: a change reports that it cannot be stored."""
        return ""

    def actions(self) -> Collection[NodeAction]:
        """Return all actions."""
        return self._store.actions.values()

    async def reserve(self, action: NodeAction) -> None:
        """Create an action."""
        if action.key not in self._store.actions:
            await self._change(action.key, action)

    async def advance(self, before: NodeAction, after: NodeAction) -> None:
        """Replace an action."""
        if self._store.actions.get(before.key) == before:
            await self._change(before.key, after)

    async def refresh(self) -> None:
        """Do nothing: no other process changes an action."""

    async def delete(self, action: NodeAction) -> None:
        """Delete an action."""
        if self._store.actions.get(action.key) == action:
            await self._change(action.key, None)

    async def _change(self, key: str, action: NodeAction | None) -> None:
        try:
            await self._store.set_action(key, action)
        except OperatorActionError as error:
            raise ActionStoreError(str(error)) from None
        self._on_changed()
