"""The observed Nodes and DeviceTaintRules of a cluster: what they mean, and what they lack. Pure.

It owns all that is Kubernetes' own: the fleet half receives nodes and observed marks, and asks `carries`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.executors.kube.desired import (
    DesiredNode,
    DeviceRule,
    desired_node,
    device_rules,
    is_as_desired,
    is_unmarked,
    own_taints,
    unexplained_taints,
    unmarked_node,
)
from nodeguard.executors.owners import NodeOwners, accepted_kinds, adds_mark
from nodeguard.fleet.state.device_index import DeviceIndex
from nodeguard.fleet.state.node_marks import decode_record
from nodeguard.model.decision import NodeDecision
from nodeguard.model.device import Device, device_mark_name
from nodeguard.model.instant import parse_or_zero
from nodeguard.model.inventory import NO_OBSERVED_MARKS, InventoryNode, ObservedMarks
from nodeguard.model.job import JOB_ANNOTATION, JOB_START_ANNOTATION, NodeJob, is_job_name
from nodeguard.model.mark import (
    DEVICE_MARKS,
    HOLD_ANNOTATION,
    MAINTENANCE_ANNOTATION,
    NO_SCHEDULE,
    STATE_ANNOTATION,
    Mark,
    MarkRecord,
    NodeMarks,
)
from nodeguard.model.node import MAINTENANCE_IN_PROGRESS, MAINTENANCE_PLANNED, Node
from nodeguard.model.policy import MarkWrites

_EMPTY = MarkRecord()
_KINDS = {mark.key: mark for mark in Mark}


class ClusterWrites(Struct, frozen=True):
    """The writes that bring a cluster to some decisions."""

    nodes: tuple[DesiredNode, ...] = ()
    """Of the Nodes that differ."""
    rules: tuple[DeviceRule, ...] = ()
    """To create or update."""
    rules_gone: tuple[str, ...] = ()
    """Names of rules to delete."""

    def __bool__(self) -> bool:
        return bool(self.nodes or self.rules or self.rules_gone)


class _RefusedRecord(Struct, frozen=True):
    """The record of a Node's marks that the API server refuses. state: the annotation meanwhile."""

    record: MarkRecord
    state: str
    reason: str


class ObservedCluster:
    """The objects of a cluster. nodes: by uid. rules: device rules of nodeguard, by name."""

    def __init__(self, owners: NodeOwners | None = None) -> None:
        self._owners = owners or NodeOwners()
        self.nodes: dict[str, Node] = {}
        self.rules: dict[str, DeviceRule] = {}
        self._uids: dict[str, str] = {}
        self._records: dict[str, MarkRecord] = {}  # by uid, without those that are empty
        self._refused: dict[str, _RefusedRecord] = {}  # by uid
        self._rules_by_node: dict[str, dict[str, DeviceRule]] = defaultdict(dict)
        self._devices = DeviceIndex()
        # Names of rules that are being created, by uid of the Node.
        self._issued_rules: dict[str, set[str]] = defaultdict(set)

    def node_named(self, name: str) -> Node | None:
        """Return the Node of a name; None if there is none."""
        return self.nodes.get(self._uids.get(name, ""))

    def differs(self, node: Node) -> bool:
        """Return whether a Node differs from the known one in more than its version: a watch repeats the
        response of a write, and a kubelet changes fields that are not used here.
        """
        before = self.nodes.get(node.uid)
        return before is None or replace(before, version=node.version) != node

    def update_node(self, node: Node) -> tuple[InventoryNode, ObservedMarks]:
        """Update a Node; one of the same name and another uid is removed. Returns it, and its marks."""
        before = self._uids.get(node.name, node.uid)
        if before != node.uid:
            self.remove_node(before)
        self.nodes[node.uid], self._uids[node.name] = node, node.uid
        record = self._record(node)
        if record == _EMPTY:
            self._records.pop(node.uid, None)
        else:
            self._records[node.uid] = record
        return inventory_node(node, record, self._owner(node)), self.observed(node.uid)

    def record_refused(self, uid: str, record: MarkRecord, reason: str) -> None:
        """Keep the record of a Node's marks that the API server refuses, while a taint of it is there."""
        state = self.nodes[uid].annotations.get(STATE_ANNOTATION, "")
        self._refused[uid] = _RefusedRecord(record, state, reason)

    def record_accepted(self, uid: str) -> bool:
        """Forget a refused record: the Node has the desired marks. Returns whether there was one."""
        return self._refused.pop(uid, None) is not None

    def observe_again(self, uid: str) -> ObservedMarks:
        """Return the marks of a Node after another record of it is refused or accepted."""
        return self.update_node(self.nodes[uid])[1]

    def refused_record(self, name: str) -> MarkRecord | None:
        """Return the record of the marks of a Node that the API server refuses; None if it refuses none."""
        refused = self._refused.get(self._uids.get(name, ""))
        return None if refused is None else refused.record

    def remove_node(self, uid: str) -> None:
        """Remove a deleted Node."""
        node = self.nodes.pop(uid, None)
        self._records.pop(uid, None)
        self._refused.pop(uid, None)
        self._issued_rules.pop(uid, None)
        if node is not None and self._uids.get(node.name) == uid:
            del self._uids[node.name]

    def update_rule(self, rule: DeviceRule) -> None:
        """Update a device rule."""
        self.remove_rule(rule.name)
        self.rules[rule.name] = self._rules_by_node[rule.uid][rule.name] = rule
        self._issued_rules[rule.uid].discard(rule.name)

    def remove_rule(self, name: str) -> DeviceRule | None:
        """Remove a deleted device rule, and return it; None if there was none."""
        rule = self.rules.pop(name, None)
        if rule is not None:
            self._rules_by_node[rule.uid].pop(name, None)
        return rule

    def update_devices(self, node: str, devices: Iterable[Device]) -> None:
        """Update all published devices of a node, by its name."""
        self._devices.update_devices(node, devices)

    def observed(self, uid: str) -> ObservedMarks:
        """Return the observed marks of a Node and its devices."""
        node, record = self.nodes[uid], self._records.get(uid, _EMPTY)
        rules = [(rule, _device_record(rule)) for rule in self._rules_by_node.get(uid, {}).values()]
        devices = {_device(rule): record for rule, record in rules if record is not None}
        accepted = accepted_kinds(record.accepted, self._owner(node))
        present = accepted.union(_KINDS[taint.key] for taint in node.taints if taint.key in _KINDS)
        if record is _EMPTY and not devices and not present and not node.taints:
            return NO_OBSERVED_MARKS
        return ObservedMarks(
            records=NodeMarks(
                replace(record, cordoned=False, accepted=None)
                if record.cordoned or record.accepted
                else record,
                devices,
            ),
            present=present,
            in_effect=accepted.union(
                _KINDS[taint.key]
                for taint in node.taints
                if taint.key in _KINDS and taint.effect == NO_SCHEDULE
            ),
            is_out=record.cordoned and node.unschedulable,
            foreign=tuple(f"{taint.key}={taint.value}" for taint in unexplained_taints(node, record)),
            devices_in_effect=frozenset(device for device in devices if self._is_tainted(uid, device)),
            record_problem=refused.reason if (refused := self._refused.get(uid)) is not None else "",
        )

    def carries(self, decision: NodeDecision, writes: MarkWrites) -> bool:
        """Return whether the cluster shows a decision already. writes: what the policy writes for a mark."""
        node = self.nodes.get(decision.node)
        if node is None:
            return True
        desired = self._desired_node(node, decision, writes)
        rules = {rule.name: rule for rule in device_rules(decision)}
        return (
            desired.is_final
            and self._is_as_desired(node, desired)
            and all(self.rules.get(name) == rule for name, rule in rules.items())
            and rules.keys() >= self._rule_names(node.uid)
        )

    def writes(self, decisions: Iterable[NodeDecision], writes: MarkWrites) -> ClusterWrites:
        """Return the writes for some decisions, and those that remove rules without a Node or a device."""
        nodes, changed, gone = list[DesiredNode](), list[DeviceRule](), list(self._orphaned_rules())
        for decision in decisions:
            node = self.nodes.get(decision.node)
            if node is None:
                continue
            if adds_mark(self._records.get(node.uid, _EMPTY), decision.record):
                self._owners.accepted.pop(node.uid, None)  # that was for its earlier marks
            desired = self._desired_node(node, decision, writes)
            if not self._is_as_desired(node, desired):
                nodes.append(desired)
            rules = {rule.name: rule for rule in device_rules(decision)}
            changed += [rule for rule in rules.values() if self.rules.get(rule.name) != rule]
            gone += sorted(self._rule_names(node.uid) - rules.keys())
        return ClusterWrites(tuple(nodes), tuple(changed), tuple(dict.fromkeys(gone)))

    def removal(self) -> ClusterWrites:
        """Return the writes that remove every mark of nodeguard. Taints that others set stay."""
        refused = {uid: refused.record for uid, refused in self._refused.items()}
        marked = (node for uid, node in self.nodes.items() if not is_unmarked(node, refused.get(uid)))
        nodes = tuple(unmarked_node(node, refused.get(node.uid)) for node in marked)
        return ClusterWrites(nodes, rules_gone=tuple(self.rules))

    def record_issued(self, writes: ClusterWrites) -> None:
        """Record that writes are being carried out."""
        for names in self._issued_rules.values():
            names.difference_update(writes.rules_gone)
        for rule in writes.rules:
            if rule.name not in self.rules:
                self._issued_rules[rule.uid].add(rule.name)

    def drop_issued(self) -> None:
        """Record that no write continues."""
        self._issued_rules.clear()

    def _owner(self, node: Node) -> str:
        return self._owners.owner(node.name, node.labels)

    def _record(self, node: Node) -> MarkRecord:
        """Return the record of a Node: if its annotation is gone or refused, the latest record while a taint
        of it stays. Else the taint would count as another client's.

        Only the annotation shows that a cordon is nodeguard's: it may be an operator's since then.
        """
        state = node.annotations.get(STATE_ANNOTATION, "")
        annotated, refused = decode_record(state) or _EMPTY, self._refused.pop(node.uid, None)
        if refused is not None and refused.state == state and own_taints(node, refused.record):
            self._refused[node.uid] = refused
            return replace(refused.record, cordoned=annotated.cordoned)
        latest = self._records.get(node.uid, _EMPTY)
        if annotated == _EMPTY and own_taints(node, latest):
            return replace(latest, cordoned=False)
        return annotated

    def _desired_node(self, node: Node, decision: NodeDecision, writes: MarkWrites) -> DesiredNode:
        record, accepted = self._records.get(node.uid, _EMPTY), self._owners.accepted.get(node.uid)
        return desired_node(node, record, decision, writes, self._owner(node), accepted)

    def _is_as_desired(self, node: Node, desired: DesiredNode) -> bool:
        """Return whether a Node is in its desired state. After a refusal, its annotation may be desired again
        while the refused record still counts: only the outcome of a write ends that.
        """
        refused = self._refused.get(node.uid)
        return is_as_desired(node, desired) and (refused is None or refused.record == desired.record)

    def _rule_names(self, uid: str) -> set[str]:
        """Return the names of the rules of a node's devices, also of those that are being created. One with a
        record that another client edited is not among them: it stays, like such a taint of a Node.
        """
        rules = self._rules_by_node.get(uid, {})
        existing = {name for name, rule in rules.items() if _device_record(rule) is not None}
        return existing | self._issued_rules.get(uid, set())

    def _orphaned_rules(self) -> Iterator[str]:
        """Yield the names of rules with a Node or device that no longer exists."""
        for rule in self.rules.values():
            if rule.uid not in self.nodes or self._devices.is_gone(_device(rule)):
                yield rule.name

    def _is_tainted(self, uid: str, device: Device) -> bool:
        rule = self.rules.get(device_mark_name(uid, device))
        if rule is None:
            return False
        return rule.taint.effect == NO_SCHEDULE and any(rule.taint.key == mark.key for mark in DEVICE_MARKS)


def inventory_node(node: Node, record: MarkRecord, owner: str = "") -> InventoryNode:
    """Return a Node in the terms of no scheduler. record: its record, with the owner of the cordon. owner:
    the webhook that owns it; empty for none.
    """
    return InventoryNode(
        key=node.uid,
        name=node.name,
        labels=node.labels,
        gpus=node.gpus,
        ready=node.ready,
        not_ready_since=node.not_ready_since,
        out_by_operator=node.unschedulable and not record.cordoned,
        hold=annotated_reason(node.annotations, HOLD_ANNOTATION),
        maintenance=annotated_reason(node.annotations, MAINTENANCE_ANNOTATION)
        or _condition_reason(node, MAINTENANCE_IN_PROGRESS),
        planned_maintenance=_condition_reason(node, MAINTENANCE_PLANNED),
        job=_annotated_job(node),
        owner=owner,
    )


def annotated_reason(annotations: Mapping[str, str], annotation: str) -> str:
    """Return the reason in an operator's annotation; empty without one. An empty value counts; `false` does
    not.
    """
    value = annotations.get(annotation)
    if value is None or value == "false":
        return ""
    return value or f"annotation {annotation}"


def _condition_reason(node: Node, condition: str) -> str:
    """Return a condition of a maintenance as its reason; empty if it is not True."""
    return f"condition {condition} is True" if condition in node.maintenance_conditions else ""


def _annotated_job(node: Node) -> NodeJob | None:
    """Return the job that an annotation names; None for none, and for text that is no name."""
    name = node.annotations.get(JOB_ANNOTATION, "").strip()
    if not (name and is_job_name(name)):
        return None
    start = parse_or_zero(node.annotations.get(JOB_START_ANNOTATION, "").strip())
    return NodeJob(name, (start,) if start else ())


def _device(rule: DeviceRule) -> Device:
    return Device(rule.node, rule.driver, rule.pool, rule.device)


def _device_record(rule: DeviceRule) -> MarkRecord | None:
    """Return the record of a rule; None if it has no mark that a device can carry."""
    record = decode_record(rule.state)
    return record if record is not None and not record.marks.isdisjoint(DEVICE_MARKS) else None
