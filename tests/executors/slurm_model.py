"""An executor of the tests that knows only what Slurm does: drain with a reason, and a feature off."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from nodeguard.executors.executor import ExecutorReports
from nodeguard.fleet.decide.observed_marks import WriteError
from nodeguard.model.decision import NodeDecision
from nodeguard.model.mark import Mark, MarkRecord

# A reason of our own begins with it: another one is an operator's.
OURS = "nodeguard: "
FEATURE = "gang"


@dataclass
class SlurmNode:
    """A node of the scheduler. comment: text that it keeps for nodeguard."""

    reason: str = ""
    features: set[str] = field(default_factory=lambda: {FEATURE})
    comment: str = ""


class Slurm:
    """The state of the scheduler. refuses: whether it refuses each change. lose: how many further changes it makes
    without a response. changes: how many it made.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, SlurmNode] = {}
        self.refuses = False
        self.lose = 0
        self.changes = 0

    def node(self, name: str) -> SlurmNode:
        return self.nodes.setdefault(name, SlurmNode())

    def update(self, name: str, after: SlurmNode) -> bool:
        """Change a node. Returns whether a response arrives; raises ValueError for a refused change."""
        if self.refuses:
            raise ValueError("Access/permission denied")
        self.nodes[name] = after
        self.changes += 1
        if self.lose:
            self.lose -= 1
            return False
        return True


class SlurmExecutor:
    """Carries decisions out in a Slurm; see MarkExecutor. `step` does one thing that is due."""

    def __init__(self, slurm: Slurm, reports: ExecutorReports) -> None:
        self._slurm, self._reports = slurm, reports
        self._due: dict[str, NodeDecision] = {}

    def desired(self, decisions: Iterable[NodeDecision]) -> None:
        for decision in decisions:
            if any(mark.device is not None for mark in decision.marks):
                self._refuse(decision.node, "a device cannot be drained: mark the node")
            else:
                self._due[decision.node] = decision

    def withdraw(self, nodes: Iterable[str]) -> None:
        for node in nodes:
            self._due.pop(node, None)

    def is_in_flight(self, node: str) -> bool:
        return False

    def step(self) -> bool:
        """Carry one decision out. Returns whether one was due."""
        if not self._due:
            return False
        decision = self._due.pop(next(iter(self._due)))
        node = self._slurm.node(decision.name)
        after = _after(node, decision)
        try:
            if after != node and not self._slurm.update(decision.name, after):
                self._due[decision.node] = decision  # read and compare again
                return True
        except ValueError as error:
            self._refuse(decision.node, str(error))
        else:
            self._reports.marks_written(decision.node, decision.record)
        return True

    def _refuse(self, node: str, reason: str) -> None:
        self._reports.write_failed(node, WriteError(reason, is_refused=True))
        self._reports.marks_failed(node)


def record_of(node: SlurmNode) -> MarkRecord | None:
    """Return the record that a node keeps; None without one."""
    return msgspec.json.decode(node.comment, type=MarkRecord) if node.comment else None


def _after(node: SlurmNode, decision: NodeDecision) -> SlurmNode:
    kinds = {mark.kind for mark in decision.marks}
    is_ours = not node.reason or node.reason.startswith(OURS)
    reason = node.reason
    if is_ours:
        causes = ", ".join(cause.text for cause in decision.record.causes if cause.mark == Mark.QUARANTINE)
        reason = f"{OURS}{causes}" if Mark.QUARANTINE in kinds else ""
    features = {FEATURE} if not kinds - {Mark.QUARANTINE} else set[str]()
    comment = msgspec.json.encode(decision.record).decode() if decision.marks else ""
    return SlurmNode(reason, features, comment)
