"""Marks of all nodes: the observed marks on Nodes and device rules, and the pending writes.

The caller passes all inputs: this module reads no clock, and does no I/O.
"""

from __future__ import annotations

from collections.abc import Set

from msgspec.structs import replace

from nodeguard.fleet.state.node_marks import encode_record
from nodeguard.model.mark import NodeMarks
from nodeguard.model.node import Node

_NO_MARKS = NodeMarks()
_NO_TAINTS: frozenset[str] = frozenset()


class MarkIndex:
    """The observed and the pending marks of each node, by uid.

    A write is pending from its issue until its effect is observed, or until it failed.
    """

    def __init__(self) -> None:
        self._observed: dict[str, NodeMarks] = {}
        self._recorded: set[str] = set()
        self._pending: dict[str, NodeMarks] = {}
        self._written: set[str] = set()
        self._removed_taints: dict[str, frozenset[str]] = {}

    def marks(self, uid: str) -> NodeMarks:
        """Return the marks of a node, with a pending write."""
        return self._pending.get(uid) or self._observed.get(uid, _NO_MARKS)

    def observed(self, uid: str) -> NodeMarks:
        """Return the observed marks of a node."""
        return self._observed.get(uid, _NO_MARKS)

    def pending(self, uid: str) -> NodeMarks | None:
        """Return the marks of a pending write; None if there is none."""
        return self._pending.get(uid)

    def pending_nodes(self) -> tuple[str, ...]:
        """Return the uids of nodes with a pending write."""
        return tuple(self._pending)

    def marked_nodes(self) -> Set[str]:
        """Return the uids of nodes with a record, observed or pending."""
        return self._recorded | self._pending.keys()

    def has_record(self, uid: str) -> bool:
        """Return whether a node has a record, observed or pending."""
        return uid in self._recorded or uid in self._pending

    def observe(self, uid: str, observed: NodeMarks) -> None:
        """Set the observed marks of a node. A pending write that is observed is not pending any more."""
        self._observed[uid] = observed
        if observed == _NO_MARKS:
            self._recorded.discard(uid)
        else:
            self._recorded.add(uid)
        if uid in self._written:
            # Its devices have their own rules, which are written before or after it.
            self._written.discard(uid)
            self._pending[uid] = replace(self._pending[uid], node=observed.node)
        if self._pending.get(uid) == observed:
            del self._pending[uid]

    def record_issued(self, uid: str, marks: NodeMarks) -> None:
        """Record that a write of a node's marks was issued."""
        self._pending[uid] = marks
        self._written.discard(uid)

    def record_written(self, uid: str, state: str) -> None:
        """Record that a state annotation is written. If it is the latest issued one, the next observation of
        the Node has it, or a later state.
        """
        if uid in self._pending and encode_record(self._pending[uid].node) == state:
            self._written.add(uid)

    def record_failed(self, uid: str) -> None:
        """Record that the pending write of a node failed."""
        self._pending.pop(uid, None)
        self._written.discard(uid)

    def record_taints(self, old: Node | None, new: Node, *, writes_taints: bool) -> None:
        """Record which taints of nodeguard another client removed. writes_taints: whether the policy does."""
        uid = new.uid
        after = frozenset(taint.key for taint in new.taints)
        before = frozenset(taint.key for taint in old.taints) if old is not None else _NO_TAINTS
        # If the policy writes no taints, nodeguard itself removes them.
        is_own = not writes_taints or uid in self._pending
        removed = (self._removed_taints.get(uid, _NO_TAINTS) | (_NO_TAINTS if is_own else before)) - after
        if removed:
            self._removed_taints[uid] = removed
        else:
            self._removed_taints.pop(uid, None)

    def is_taint_removed(self, uid: str, key: str) -> bool:
        """Return whether another client removed a taint, by its key."""
        return key in self._removed_taints.get(uid, _NO_TAINTS)

    def remove(self, uid: str) -> None:
        """Remove a node."""
        self._observed.pop(uid, None)
        self._recorded.discard(uid)
        self.record_failed(uid)
        self._removed_taints.pop(uid, None)
