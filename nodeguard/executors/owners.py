"""The owner of a node: the backend, or the webhook that the configuration names for it.

The backend keeps the record of every node, so that a successor continues from it. Where a webhook owns the
node, the backend writes nothing else: the receiver keeps work away, and a mark is in effect once the receiver
has accepted it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.model.mark import AcceptedMarks, Mark, MarkRecord
from nodeguard.model.policy import Labels, NodePattern


class OwnedNodes(Struct, frozen=True, forbid_unknown_fields=True):
    """The nodes that a webhook owns: those with all these labels, and a name of this pattern. The default is
    all nodes. A node with several owners belongs to the first.
    """

    node: NodePattern = "*"
    labels: Labels = {}


class NodeOwners:
    """Which webhook owns which nodes, and what their receivers have accepted.

    owned: names of the webhooks that own nodes, with these nodes. accepted: by key of the node, since this
    aggregator leads: the kinds of the latest marks that the receiver of its owner has accepted.
    """

    def __init__(self, owned: Iterable[tuple[str, OwnedNodes]] = ()) -> None:
        self._owned = tuple(owned)
        self.accepted: dict[str, frozenset[Mark]] = {}

    def __bool__(self) -> bool:
        """Return whether any webhook owns nodes."""
        return bool(self._owned)

    def is_owner(self, webhook: str) -> bool:
        """Return whether a webhook owns nodes."""
        return any(name == webhook for name, _ in self._owned)

    def owner(self, name: str, labels: Mapping[str, str]) -> str:
        """Return the webhook that owns a node; empty for the backend."""
        return next(
            (
                webhook
                for webhook, nodes in self._owned
                if fnmatchcase(name, nodes.node) and nodes.labels.items() <= labels.items()
            ),
            "",
        )


class OwnedRecord(Struct, frozen=True):
    """What the backend keeps of a node that a webhook owns."""

    record: MarkRecord
    """Without the acceptance."""
    accepted: frozenset[Mark]
    """The kinds of marks that the receiver has accepted: they are in effect."""
    is_final: bool
    """Whether it shows the decision: the receiver has accepted all of it."""

    def stored(self, owner: str) -> MarkRecord:
        """Return the record with the acceptance."""
        kinds = tuple(sorted(self.accepted, key=lambda mark: mark.rank))
        return replace(self.record, accepted=AcceptedMarks(owner, kinds) if kinds else None)


def owned_record(
    stored: MarkRecord, wanted: MarkRecord, owner: str, accepted: frozenset[Mark] | None
) -> OwnedRecord:
    """Return what the backend keeps of a node for a decision.

    stored: its record now. wanted: that of the decision. accepted: see NodeOwners; None if unknown.

    A mark is recorded before it is posted, so that it is never in effect without a record. A release is
    recorded when the receiver has accepted it, and is charged to its budget until then.
    """
    kinds = accepted_kinds(stored.accepted, owner) if accepted is None else accepted
    is_release = not adds_mark(stored, wanted) and adds_mark(wanted, stored)
    if is_release and (accepted is None or not kinds <= wanted.marks):
        return OwnedRecord(replace(stored, accepted=None, cordoned=False), kinds, is_final=False)
    return OwnedRecord(wanted, kinds, is_final=kinds == wanted.marks)


def adds_mark(before: MarkRecord, after: MarkRecord) -> bool:
    """Return whether a record has a kind of mark that no mark of an earlier record covers."""
    return any(not any(mark.covers(added) for mark in before.marks) for added in after.marks)


def accepted_kinds(accepted: AcceptedMarks | None, owner: str) -> frozenset[Mark]:
    """Return the kinds that the receiver of the owner has accepted: what another one accepted, or an unknown
    kind, does not count.
    """
    if accepted is None or accepted.webhook != owner:
        return frozenset()
    return frozenset(mark for mark in Mark if mark.value in accepted.marks)
