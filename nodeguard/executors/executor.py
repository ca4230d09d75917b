"""The executor protocol: between the plan loop, and one place that shows the marks of nodes.

One aggregator may run several executors. Each node has one that owns it: the marks that this one observes
count for budgets and incidents. The others mirror the decisions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from nodeguard.model.decision import NodeDecision
from nodeguard.model.mark import Mark


class MarkExecutor(Protocol):
    """Carries decisions out in one place, such as Kubernetes, Slurm, a webhook or a file."""

    @property
    def name(self) -> str:
        """Return its name in messages and metrics, such as `kube`."""

    @property
    def kinds(self) -> frozenset[Mark]:
        """Return the kinds of marks that it can carry. It reports a mark of another kind as refused."""

    @property
    def carries_devices(self) -> bool:
        """Return whether it can mark one device; if not, it reports such a mark as refused."""

    def desired(self, decisions: Iterable[NodeDecision]) -> None:
        """Start to carry out the decisions about some nodes. The latest one of a node wins, in place of one
        that has not begun; one that is shown already changes nothing. Does not block.
        """

    def withdraw(self, nodes: Iterable[str]) -> None:
        """Withdraw the decisions about some nodes, by key, that it has not begun to carry out."""

    def is_in_flight(self, node: str) -> bool:
        """Return whether it has begun to carry out a decision about a node: it may still succeed."""


class ExecutorReports(Protocol):
    """Receives what an executor observes. Nodes are named by their keys."""

    def observed(self, executor: str, node: str, revision: str) -> None:
        """Handle that the executor shows the decision of a revision on a node."""

    def failed(self, executor: str, node: str, revision: str, reason: str, *, is_refused: bool) -> None:
        """Handle that an attempt failed. is_refused: whether the other side answered and refused it; if not,
        the executor tries again.
        """
