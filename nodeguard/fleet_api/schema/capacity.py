"""Schema of the capacity of the fleet: nodes and GPUs that take new work, and why marks have no effect."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class WorkState(StrEnum):
    """Whether a node takes new work. `working`: it does. `unknown`: it does, and its health is unknown.
    `faulty`: faulty in service, as the mark of a fault is withheld, in dry run or pending. `marked`: marks of
    nodeguard keep work away, gang work at least; without a cluster they advise that. `cordoned`: others keep
    all work away. `not-ready`: it is not cordoned, and the scheduler does not consider it to be up.
    """

    WORKING = "working"
    UNKNOWN = "unknown"
    FAULTY = "faulty"
    MARKED = "marked"
    CORDONED = "cordoned"
    NOT_READY = "not-ready"


class MarkedCounts(Struct, frozen=True):
    """Marks of Nodes and device rules."""

    nodes: int = 0
    """Number of nodes with this mark as their worst one."""
    devices: int = 0
    """Number of marked GPUs of nodes that stay in service."""


class ReasonCount(Struct, frozen=True):
    """A reason, with the numbers of its marks and their nodes."""

    reason: str
    marks: int
    """Number of marks."""
    nodes: int = 0
    """Number of their nodes."""


class CapacityView(Struct, frozen=True):
    """Nodes by whether they take new work. A suppressed check and a bad job start make no node faulty."""

    nodes: dict[WorkState, int] = {}
    """Number of nodes by work state, each counted once. `faulty`: in service, and the mark of their fault is
    not in effect; `cordoned`: by others."""
    reasons: tuple[ReasonCount, ...] = ()
    """Why the marks of faulty nodes are not in effect, one reason for each node, the most frequent first."""
    other_reasons: ReasonCount = ReasonCount("", 0)
    """Sum of the reasons that `reasons` omits."""
    gpus: int = 0
    """Number of GPUs of all nodes, lost ones too, as far as the Node or its agent counts them."""
    gpus_in_service: int = 0
    """Number of GPUs that take new work, at least that of single nodes: they are not lost, neither they nor
    their node are quarantined, and the node is ready and not cordoned."""

    @property
    def faulty(self) -> int:
        """Return the number of nodes that are faulty in service."""
        return self.nodes.get(WorkState.FAULTY, 0)
