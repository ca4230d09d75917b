"""A Node as it is once what was planned for it has been written. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from nodeguard.model.mark import STATE, Desired
from nodeguard.model.node import PREFIX, Node


def carried(node: Node, desired: Desired) -> Node:
    """The Node after a write of what it is to carry: what is not nodeguard's stays as it is, and so does the
    condition for other readings alone.
    """
    annotations = {key: text for key, text in node.annotations.items() if key != STATE}
    if desired.state:
        annotations[STATE] = desired.state
    wanted, condition = desired.condition, node.condition
    if wanted is not None and wanted.replaces(condition):
        condition = replace(wanted, message=wanted.short_message) if wanted.status else None
    foreign = tuple(one for one in node.taints if not one.key.startswith(PREFIX))
    return replace(
        node,
        taints=(*foreign, *desired.taints),
        annotations=annotations,
        unschedulable=node.unschedulable if desired.cordon is None else desired.cordon,
        condition=condition,
    )
