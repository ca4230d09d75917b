"""The plan: the writes for the executors, and the changes of incidents. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct

from nodeguard.fleet.decide.release import ReleasedMark
from nodeguard.fleet.incidents.events import IncidentEvent
from nodeguard.fleet.state.fleet_state import FleetState
from nodeguard.fleet.state.node_marks import (
    desired_node,
    device_rules,
    foreign_taints,
    is_as_desired,
    with_cordon,
)
from nodeguard.model.incident import Incident
from nodeguard.model.mark import STATE_ANNOTATION, DesiredNode, DeviceRule, NodeMarks
from nodeguard.model.node import PREFIX, Node, NodeCondition


class Plan(Struct, frozen=True):
    """The writes that bring Nodes to their desired marks, and the incidents and Events to record.

    nodes: the desired state of Nodes that differ from it. rules: device rules to create or update;
    rules_gone: names of rules to delete. incidents: those that changed. events: Events to record once.
    released: marks that are released, by uid. transient_incidents: incidents that ended within their grace
    period; they go to the history only. deferred: number of nodes with a granted mark that a later plan
    issues.
    """

    nodes: tuple[DesiredNode, ...] = ()
    rules: tuple[DeviceRule, ...] = ()
    rules_gone: tuple[str, ...] = ()
    incidents: tuple[Incident, ...] = ()
    events: tuple[IncidentEvent, ...] = ()
    released: tuple[tuple[str, ReleasedMark], ...] = ()
    transient_incidents: tuple[Incident, ...] = ()
    deferred: int = 0


class NodeWrites(Struct):
    """The writes of a plan. nodes, rules, rules_gone: see Plan. marks: of each node that may be written, by
    uid. settled: uids of the nodes without a device rule that carry all of these marks, or on which they are
    being written.
    """

    nodes: list[DesiredNode] = []
    rules: list[DeviceRule] = []
    rules_gone: list[str] = []
    marks: dict[str, NodeMarks] = {}
    settled: set[str] = set()


def node_writes(
    state: FleetState,
    planned: Mapping[str, NodeMarks],
    condition_of: Callable[[Node, NodeMarks], NodeCondition | None],
) -> NodeWrites:
    """Return the writes for the planned marks of nodes, by uid, if these differ from those on the Nodes."""
    writes, rules = NodeWrites(), state.devices.rules
    writes.rules_gone.extend(state.devices.orphaned_rules(state.nodes))
    for uid, planned_marks in planned.items():
        placement, current = state.placements.get(uid), state.marks(uid)
        if placement is None or placement.hold:
            continue
        if planned_marks == current and state.is_pending(uid):
            if not (current.devices or state.devices.rule_names(uid)):
                writes.settled.add(uid)
            continue
        node, observed = state.nodes[uid], state.observed_marks(uid).node
        marks = writes.marks[uid] = with_cordon(node, observed, planned_marks, state.policy.marks)
        desired = desired_node(
            placement, node, observed, marks, state.policy.marks, condition_of(node, marks)
        )
        is_desired = is_as_desired(node, desired)
        if not is_desired:
            writes.nodes.append(desired)
        desired_rules = {rule.name: rule for rule in device_rules(placement, marks)}
        writes.rules += [rule for rule in desired_rules.values() if rules.get(rule.name) != rule]
        current_rules = {
            *state.devices.rule_names(uid),
            *(rule.name for rule in device_rules(placement, current)),
        }
        writes.rules_gone += sorted(current_rules - desired_rules.keys())
        if is_desired and marks == current and not current_rules:
            writes.settled.add(uid)
    return writes


def removal_plan(state: FleetState) -> Plan:
    """Return the plan that removes every mark of nodeguard. Taints that others set stay."""
    nodes = (
        DesiredNode(
            uid,
            node.name,
            foreign_taints(node),
            cordon=False if state.marks(uid).node.cordoned else None,
            condition=NodeCondition("", "") if node.condition else None,
        )
        for uid, node in state.nodes.items()
    )
    return Plan(
        nodes=tuple(desired for desired in nodes if _has_marks(state.nodes[desired.uid], desired)),
        rules_gone=tuple(state.devices.rules),
    )


def _has_marks(node: Node, desired: DesiredNode) -> bool:
    """Return whether a Node has something to remove. desired: without the marks of nodeguard."""
    return (
        node.condition is not None
        or STATE_ANNOTATION in node.annotations
        or any(taint.key.startswith(PREFIX) and taint not in desired.taints for taint in node.taints)
    )
