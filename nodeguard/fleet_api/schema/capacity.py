"""Schema of the capacity of the fleet: nodes by whether they take new work, and why marks have no effect."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class WorkState(StrEnum):
    """Whether a node takes new work. `working`: it does. `faulty`: faulty in service, as the mark of a fault
    is withheld, in dry run or pending. `marked`: marks of nodeguard keep work away, gang work at
    least; without a cluster they advise that. `cordoned`: others keep all work away. `not-ready`: it is not
    cordoned, and the scheduler does not consider it to be up.
    """

    WORKING = "working"
    FAULTY = "faulty"
    MARKED = "marked"
    CORDONED = "cordoned"
    NOT_READY = "not-ready"


class MarkedCounts(Struct, frozen=True):
    """Marks of Nodes and device rules. nodes: each counted by its worst mark; devices: single GPUs of nodes
    that stay in service.
    """

    nodes: int = 0
    devices: int = 0


class ReasonCount(Struct, frozen=True):
    """A reason, and the number of marks that it concerns, and of their nodes."""

    reason: str
    marks: int
    nodes: int = 0


class CapacityView(Struct, frozen=True):
    """Nodes by whether they take new work. reasons: why the marks of faulty nodes are not in effect, one for
    each node, the most frequent first; other_reasons: the sum of those that are left out. A suppressed check
    and the bad start of a job make no node faulty.
    """

    nodes: dict[WorkState, int] = {}
    """Number of nodes by work state, each counted once. `faulty`: in service, and the mark of their fault
    is not in effect; `cordoned`: by others."""
    reasons: tuple[ReasonCount, ...] = ()
    other_reasons: ReasonCount = ReasonCount("", 0)

    @property
    def faulty(self) -> int:
        """Return the number of nodes that are faulty in service."""
        return self.nodes.get(WorkState.FAULTY, 0)
