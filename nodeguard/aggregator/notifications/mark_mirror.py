"""The mark mirror: keeps webhooks at the marks of the planner, while this aggregator is active."""

from __future__ import annotations

from collections.abc import Iterable

from nodeguard.executors.webhook.executor import WebhookExecutor
from nodeguard.fleet.planner import Planner
from nodeguard.model.decision import NodeDecision
from nodeguard.model.mark import NodeMarks


class MarkMirror:
    """Gives executors the marks that changed since the plan before.

    They mirror the marks: another executor owns the nodes, and what it observes counts for budgets. Frozen
    marks that are the same object have not changed.
    """

    def __init__(self, executors: Iterable[WebhookExecutor]) -> None:
        self.executors = tuple(executors)
        self._epoch: int | None = None
        # The marks of each node with marks, and its name, by key.
        self._mirrored: dict[str, tuple[str, NodeMarks]] = {}

    def plan_made(self, planner: Planner, epoch: int | None) -> None:
        """Give the executors the marks after a plan. epoch: of the lease; None if this aggregator does not
        apply the plan.
        """
        if epoch != self._epoch:
            self._epoch = epoch
            self._mirrored.clear()
            for executor in self.executors:
                executor.end()
                if epoch is not None:
                    executor.begin(epoch)
        if epoch is None:
            return
        marked = planner.state.marked_nodes()
        # First what ends: a new node may have the name of a deleted one, and the later request wins.
        ended = {uid: self._mirrored.pop(uid)[0] for uid in self._mirrored.keys() - marked}
        decisions = [NodeDecision(uid, name, NodeMarks()) for uid, name in ended.items()]
        for uid in marked:
            marks = planner.state.marks(uid)
            _, before = self._mirrored.get(uid, ("", None))
            if marks is not before:
                decision = planner.decision(uid)
                self._mirrored[uid] = decision.name, marks
                decisions.append(decision)
        for executor in self.executors:
            executor.desired(decisions)
