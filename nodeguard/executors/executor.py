"""The executor protocol: between the plan loop, and one place that shows the marks of nodes.

One aggregator may run several executors. Each node has one that owns it: the marks that this one observes
count for budgets and incidents. The others mirror the decisions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from nodeguard.fleet.decide.observed_marks import WriteError
from nodeguard.model.decision import NodeDecision
from nodeguard.model.mark import MarkRecord


class MarkExecutor(Protocol):
    """Carries decisions out in one place, such as Kubernetes, Slurm, a webhook or a file. Nodes are named by
    their keys.
    """

    def desired(self, decisions: Iterable[NodeDecision]) -> None:
        """Start to carry out the decisions about some nodes. The latest one of a node wins, in place of one
        that has not begun; one that is shown already changes nothing. A mark that the place cannot show is
        reported as refused. Does not block.
        """

    def withdraw(self, nodes: Iterable[str]) -> None:
        """Withdraw the decisions about some nodes that it has not begun to carry out."""

    def is_in_flight(self, node: str) -> bool:
        """Return whether it has begun to carry out a decision about a node: it may still succeed."""


class ExecutorReports(Protocol):
    """Receives the results of an executor. Nodes are named by their keys."""

    def marks_written(self, node: str, record: MarkRecord) -> None:
        """Handle that a decision is carried out. record: of the decision."""

    def write_failed(self, node: str, error: WriteError) -> None:
        """Handle that an attempt failed."""
