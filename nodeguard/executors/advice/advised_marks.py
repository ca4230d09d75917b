"""Marks that take effect with the decision: in standalone mode, in a backtest and in a simulation. Pure."""

from __future__ import annotations

from nodeguard.executors.cordon import is_cordoned_after
from nodeguard.model.decision import NodeDecision
from nodeguard.model.inventory import ObservedMarks
from nodeguard.model.mark import Mark
from nodeguard.model.policy import MarkWrites


def advised_marks(
    decision: NodeDecision, before: ObservedMarks, writes: MarkWrites, *, out_by_operator: bool
) -> ObservedMarks:
    """Return the observed marks of a node once a decision is carried out.

    before: its observed marks until then. writes: what the policy writes for a mark. out_by_operator: whether
    an operator keeps all new work off the node.
    """
    kinds: frozenset[Mark] = frozenset(decision.record.marks) if writes.taint else frozenset()
    is_out = is_cordoned_after(
        before.records.node,
        decision.record,
        writes,
        is_ours=before.is_out,
        is_out=before.is_out or out_by_operator,
    )
    return ObservedMarks(
        records=decision.records,
        present=kinds,
        in_effect=kinds,
        is_out=is_out,
        devices_in_effect=frozenset(decision.records.devices),
    )
