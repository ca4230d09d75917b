"""The conditions `DrainInProgress` and `Drained` of a Node (Kubernetes 1.37, KEP-5683). Pure.

Other programs set them too, such as `kubectl drain`. The reason shows the writer: a condition with another
reason belongs to another program, which then drains this Node, and nodeguard sets neither of the two.
"""

from __future__ import annotations

from nodeguard.model.eviction import NodeDrain
from nodeguard.model.node import Node, NodeCondition

_IN_PROGRESS = "DrainInProgress"
_DRAINED = "Drained"

# The types of the conditions.
DRAIN_CONDITIONS = frozenset({_IN_PROGRESS, _DRAINED})

# Begins the reasons of nodeguard.
_OWN = "Nodeguard"

_STAYING = "pods of DaemonSets and pods without GPUs stay"


def own_drain_conditions(node: Node) -> dict[str, NodeCondition]:
    """Return the conditions of a drain by nodeguard that a Node has, by type."""
    return {
        kind: condition
        for kind, condition in node.drain_conditions.items()
        if condition.reason.startswith(_OWN)
    }


def desired_drain_conditions(node: Node, drain: NodeDrain | None) -> dict[str, NodeCondition]:
    """Return the conditions that a Node is to have from nodeguard, by type. drain: of the Node; None for
    none. A drain with pods that this process has not read yet changes nothing.
    """
    own = own_drain_conditions(node)
    if drain is None or len(own) < len(node.drain_conditions):
        return {}
    if drain.is_done:
        message = (
            f"{drain.pods} of {drain.pods} pods are gone: nodeguard evicted those that use GPUs; {_STAYING}"
        )
        return {_DRAINED: NodeCondition("True", f"{_OWN}Drained", message)}
    if drain.left is None:
        return own
    message = f"{drain.left} of {drain.pods} pods remain: nodeguard evicts those that use GPUs; {_STAYING}"
    return {_IN_PROGRESS: NodeCondition("True", f"{_OWN}Draining", message)}
