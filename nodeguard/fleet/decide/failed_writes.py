"""Nodes with writes that fail or take too long, and the order of writes that follows from them. Pure."""

from __future__ import annotations

from collections.abc import Iterable

# Seconds after which a write that is still pending counts as failed: the server can restart in less.
_WRITE_LIMIT = 60.0


class FailedWrites:
    """The nodes, by uid, with a failed latest write, and those with a pending write."""

    def __init__(self) -> None:
        # In the order of the failures.
        self._failed: dict[str, None] = {}
        # Since when each write is pending, in seconds of the monotonic clock, as of the latest `tick`.
        self._pending_since: dict[str, float] = {}

    def record_failed(self, uid: str) -> None:
        """Record that the write for a node failed."""
        self.forget(uid)
        self._failed[uid] = None

    def forget(self, uid: str) -> None:
        """Forget the failure of a node: a write succeeded, or the node was removed."""
        self._failed.pop(uid, None)

    def tick(self, pending: Iterable[str], now: float) -> None:
        """Update the nodes with a pending write. now: seconds of the monotonic clock."""
        since = self._pending_since
        self._pending_since = {uid: since.get(uid, now) for uid in pending}

    def in_order(self, uids: Iterable[str]) -> list[str]:
        """Return nodes in the order in which they are written: those with a failed latest write last, the
        latest failure at the end. A Node that can never be written keeps no other from its mark.
        """
        turns = {uid: turn for turn, uid in enumerate(self._failed)}
        return sorted(uids, key=lambda uid: turns.get(uid, -1))

    def unwritable(self, now: float) -> list[str]:
        """Return the nodes with a failed latest write, the latest failure last, then those with a write that
        is pending for too long. now: seconds of the monotonic clock.
        """
        late = (uid for uid, since in self._pending_since.items() if now - since >= _WRITE_LIMIT)
        return list(dict.fromkeys([*self._failed, *late]))
