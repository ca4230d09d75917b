"""The mark mirror: keeps webhooks at the marks of the planner, while this aggregator is active."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from nodeguard.executors.owners import NodeOwners, adds_mark
from nodeguard.executors.webhook.executor import WebhookExecutor
from nodeguard.fleet.planner import Planner
from nodeguard.model.decision import NodeDecision
from nodeguard.model.mark import NodeMarks


class _MirroredNode(Struct, frozen=True):
    name: str
    owner: str
    marks: NodeMarks


class MarkMirror:
    """Gives executors the marks that changed since the plan before.

    An executor that owns nodes receives these nodes. The others mirror the marks of all nodes: what the owner
    observes counts for budgets. Frozen marks that are the same object have not changed.

    executors: by name of the webhook. owners: of nodes.
    """

    def __init__(self, executors: Mapping[str, WebhookExecutor], owners: NodeOwners) -> None:
        self.executors = executors
        self._owners = owners
        self._epoch: int | None = None
        # The nodes with marks, by key.
        self._mirrored: dict[str, _MirroredNode] = {}

    def plan_made(self, planner: Planner, epoch: int | None) -> None:
        """Give the executors the marks after a plan. epoch: of the lease; None if this aggregator does not
        apply the plan.
        """
        if epoch != self._epoch:
            self._epoch = epoch
            self._mirrored.clear()
            self._owners.accepted.clear()
            for executor in self.executors.values():
                executor.end()
                if epoch is not None:
                    executor.begin(epoch)
        if epoch is None:
            return
        marked, nodes = planner.state.marks.marked_nodes(), planner.state.nodes
        # First what ends: a new node may have the name of a deleted one, and the later request wins.
        ended = {
            uid: before
            for uid, before in self._mirrored.items()
            if uid not in marked or nodes[uid].owner != before.owner
        }
        decisions = [(NodeDecision(uid, node.name, NodeMarks()), node.owner) for uid, node in ended.items()]
        for uid in ended:
            del self._mirrored[uid]
            self._owners.accepted.pop(uid, None)
        for uid in marked:
            marks, before = planner.state.marks.latest(uid), self._mirrored.get(uid)
            owner = nodes[uid].owner
            if before is not None and marks is before.marks:
                continue
            # The record of a mark is stored first: a receiver never has a mark that no successor knows.
            if owner and adds_mark(planner.state.marks.observed(uid).records.node, marks.node):
                continue
            decision = planner.decision(uid)
            self._mirrored[uid] = _MirroredNode(decision.name, owner, marks)
            decisions.append((decision, owner))
        for name, executor in self.executors.items():
            is_owner = self._owners.is_owner(name)
            executor.desired(decision for decision, owner in decisions if not is_owner or owner == name)
