"""What watches tell, handed on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

Thing = TypeVar("Thing")


class Follower(Generic[Thing]):
    """Takes what a watch tells of things of one kind; see kube.watching.Taker."""

    def __init__(
        self,
        changed: Callable[[Thing], None],
        gone: Callable[[str], None],
        synced: Callable[[], None],
    ) -> None:
        self._changed, self._gone, self._synced = changed, gone, synced

    def changed(self, thing: Thing) -> None:
        """A thing is new or has changed."""
        self._changed(thing)

    def gone(self, uid: str) -> None:
        """A thing is no more."""
        self._gone(uid)

    def synced(self) -> None:
        """All things of the kind are known."""
        self._synced()
