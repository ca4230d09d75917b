"""What a Node is after a write of what it is to carry. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from nodeguard.model.mark import STATE, Desired
from nodeguard.model.node import PREFIX, Node


def carried(node: Node, what: Desired) -> Node:
    """A Node that carries what it is to, as the executor writes it; what is not nodeguard's stays."""
    others = {key: text for key, text in node.annotations.items() if key != STATE}
    condition = node.condition if what.condition is None else what.condition
    return replace(
        node,
        taints=(*(one for one in node.taints if not one.key.startswith(PREFIX)), *what.taints),
        annotations={**others, STATE: what.state} if what.state else others,
        unschedulable=node.unschedulable if what.cordon is None else what.cordon,
        condition=condition if condition is not None and condition.status else None,
    )
