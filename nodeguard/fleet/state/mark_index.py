"""Marks of all nodes: the observed ones, and the pending writes.

The caller passes all inputs: this module reads no clock, and does no I/O.
"""

from __future__ import annotations

from collections.abc import Set

from msgspec.structs import replace

from nodeguard.model.inventory import NO_OBSERVED_MARKS, ObservedMarks
from nodeguard.model.mark import Mark, MarkRecord, NodeMarks

_NO_MARKS = NodeMarks()
_NONE: frozenset[Mark] = frozenset()


class MarkIndex:
    """The observed and the pending marks of each node, by uid.

    A write is pending from its issue until its effect is observed, or until it failed.
    """

    def __init__(self) -> None:
        self._observed: dict[str, ObservedMarks] = {}  # without those of nodes that have none
        self._recorded: set[str] = set()
        self._pending: dict[str, NodeMarks] = {}
        self._written: set[str] = set()
        self._removed: dict[str, frozenset[Mark]] = {}

    def latest(self, uid: str) -> NodeMarks:
        """Return the marks of a node, with a pending write."""
        return self._pending.get(uid) or self.observed(uid).records

    def observed(self, uid: str) -> ObservedMarks:
        """Return all that the executor observes of nodeguard's marks on a node and its devices."""
        return self._observed.get(uid, NO_OBSERVED_MARKS)

    def pending(self, uid: str) -> NodeMarks | None:
        """Return the marks of a pending write; None if there is none."""
        return self._pending.get(uid)

    def is_pending(self, uid: str) -> bool:
        """Return whether a write for a node is pending."""
        return uid in self._pending

    def pending_nodes(self) -> tuple[str, ...]:
        """Return the uids of nodes with a pending write."""
        return tuple(self._pending)

    def marked_nodes(self) -> Set[str]:
        """Return the uids of nodes with a record, observed or pending."""
        return self._recorded | self._pending.keys()

    def has_record(self, uid: str) -> bool:
        """Return whether a node has a record, observed or pending."""
        return uid in self._recorded or uid in self._pending

    def observe(self, uid: str, observed: ObservedMarks, *, writes_marks: bool = True) -> None:
        """Set the observed marks of a node. A pending write that is observed is not pending any more.
        writes_marks: whether the policy sets marks on nodes; if not, nodeguard itself removes them.
        """
        before = self.observed(uid)
        is_own = not writes_marks or uid in self._pending
        removed = self._removed.get(uid, _NONE) | (_NONE if is_own else before.present)
        if removed := removed - observed.present:
            self._removed[uid] = removed
        else:
            self._removed.pop(uid, None)
        if observed == NO_OBSERVED_MARKS:
            self._observed.pop(uid, None)
        else:
            self._observed[uid] = observed
        records = observed.records
        if records == _NO_MARKS:
            self._recorded.discard(uid)
        else:
            self._recorded.add(uid)
        if uid in self._written:
            # Its devices have their own objects, which are written before or after it.
            self._written.discard(uid)
            self._pending[uid] = replace(self._pending[uid], node=records.node)
        if self._pending.get(uid) == records:
            del self._pending[uid]

    def record_issued(self, uid: str, marks: NodeMarks) -> None:
        """Record that a write of a node's marks was issued."""
        self._pending[uid] = marks
        self._written.discard(uid)

    def record_written(self, uid: str, record: MarkRecord) -> None:
        """Record that a record of a node is written. If it is the latest issued one, the next observation of
        the node has it, or a later one.
        """
        if uid in self._pending and self._pending[uid].node == record:
            self._written.add(uid)

    def record_failed(self, uid: str) -> None:
        """Record that the pending write of a node failed."""
        self._pending.pop(uid, None)
        self._written.discard(uid)

    def is_removed(self, uid: str, mark: Mark) -> bool:
        """Return whether another client removed a mark from a node."""
        return mark in self._removed.get(uid, _NONE)

    def remove(self, uid: str) -> None:
        """Remove a node."""
        self._observed.pop(uid, None)
        self._recorded.discard(uid)
        self.record_failed(uid)
        self._removed.pop(uid, None)
