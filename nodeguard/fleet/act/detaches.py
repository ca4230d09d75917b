"""Operators' requests to detach the agent of a node from its GPUs, as actions. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from nodeguard.model.action import ActionKind, NodeAction
from nodeguard.model.instant import precise_rfc3339
from nodeguard.model.inventory import InventoryNode

# Seconds within which an agent must answer: a detach that begins later surprises.
_ANSWER_WITHIN = 600


def requested_detach(
    node: InventoryNode, gpus: Sequence[str], seconds: int, by: str, now: float
) -> NodeAction:
    """Return the action that detaches GPUs of a node, all if none is named; 0 seconds to read them again.

    by: name of the operator; empty for none. now: seconds since the epoch.
    """
    return NodeAction(
        ActionKind.DETACH_GPUS,
        node.name,
        node.key,
        f"{by or 'an operator'} at {precise_rfc3339(now)}",
        int(now),
        deadline=int(now) + (min(seconds, _ANSWER_WITHIN) or _ANSWER_WITHIN),
        gpus=tuple(gpus),
        seconds=seconds,
    )
