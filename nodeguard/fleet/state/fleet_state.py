"""The fleet state: all Nodes with their placement, marks and usage of budgets, indexed by uid.

It changes node by node, so that a plan after one change skips all other nodes. No input, output or clock:
times are arguments.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator

from msgspec.structs import replace

from nodeguard.fleet.state.annotation_codec import decode_record, encode_record
from nodeguard.fleet.state.budget_usage import BudgetUsage, NodeUsage
from nodeguard.fleet.state.liveness import AgentLiveness
from nodeguard.fleet.state.node_marks import NodeMarks, node_usage
from nodeguard.fleet.state.node_placement import NodePlacement, place_node
from nodeguard.fleet.state.topology.topologies import Topologies
from nodeguard.model.mark import STATE_ANNOTATION, DeviceRule, Mark, MarkRecord
from nodeguard.model.node import Device, Node
from nodeguard.model.policy import Policy, TopologyLabels
from nodeguard.model.target import gpu_target

# Finds the published device of a target, by the target and the id of its component; None where there is none.
FindDevice = Callable[[str, str], Device | None]


class FleetState:
    """All nodes, by uid.

    placements: of the nodes that belong to the fleet. usage: of those that use any budget. budgets: the sum
    of all usage. liveness: when each agent reported. topologies: the failure domains. topology_version: rises
    when the domains of all nodes may have changed.
    """

    def __init__(self, policy: Policy, checks: Container[str]) -> None:
        """checks: the checks that exist, see BudgetUsage."""
        self.policy = policy
        self.nodes: dict[str, Node] = {}
        self.placements: dict[str, NodePlacement] = {}
        self.usage: dict[str, NodeUsage] = {}
        self.rules: dict[str, DeviceRule] = {}
        self.budgets = BudgetUsage(policy, checks)
        self.liveness = AgentLiveness(self.placements)
        self.topologies = Topologies(policy)
        self.topology_version = 0
        self._checks = checks
        self._agents: set[str] = set()
        self._names: dict[str, str] = {}
        self._recorded: set[str] = set()
        self._observed: dict[str, NodeMarks] = {}
        self._pending: dict[str, NodeMarks] = {}
        self._written: set[str] = set()
        self._devices: dict[str, tuple[Device, ...]] = {}
        self._rules_by_node: dict[str, dict[str, DeviceRule]] = defaultdict(dict)
        self._removed_taints: dict[str, frozenset[str]] = {}

    def set_policy(self, policy: Policy) -> None:
        """Set the policy; every placement and all usage is computed again."""
        for uid in self.nodes:
            self._unindex(uid)
        self.policy, self.budgets = policy, BudgetUsage(policy, self._checks)
        self.topologies.set_policy(policy)
        self.topology_version += 1
        for uid in self.nodes:
            self._index(uid)

    def update_node(self, node: Node) -> None:
        """Update a Node."""
        self._unindex(node.uid)
        self._record_removed_taints(self.nodes.get(node.uid), node)
        self.nodes[node.uid] = node
        self._names[node.name] = node.uid
        self._observe(node.uid)
        self._index(node.uid)

    def remove_node(self, uid: str) -> None:
        """Remove a deleted Node."""
        self._unindex(uid)
        node = self.nodes.pop(uid, None)
        if node is not None and self._names.get(node.name) == uid:
            del self._names[node.name]
        self._observed.pop(uid, None)
        self._recorded.discard(uid)
        self._pending.pop(uid, None)
        self._written.discard(uid)
        self._agents.discard(uid)
        self._removed_taints.pop(uid, None)
        self._forget_domains(uid)

    def choose_topologies(self) -> None:
        """Choose the label schemes once all Nodes are there, so that their order does not matter."""
        if self.topologies.choose():
            self._reindex_all()

    def import_topologies(self, schemes: Iterable[TopologyLabels]) -> None:
        """Import all topologies that the cluster's own objects declare."""
        if self.topologies.import_schemes(schemes):
            self._reindex_all()

    def add_agent(self, uid: str) -> None:
        """Record that a node has an agent: the node belongs to the fleet, even without GPUs."""
        if uid not in self._agents:
            self._unindex(uid)
            self._agents.add(uid)
            self._index(uid)

    def update_rule(self, rule: DeviceRule) -> None:
        """Update a device rule."""
        self.rules[rule.name] = rule
        self._rules_by_node[rule.uid][rule.name] = rule
        self._reindex(rule.uid)

    def remove_rule(self, name: str) -> None:
        """Remove a deleted device rule."""
        rule = self.rules.pop(name, None)
        if rule is not None:
            self._rules_by_node[rule.uid].pop(name, None)
            self._reindex(rule.uid)

    def update_devices(self, node: str, devices: Iterable[Device]) -> None:
        """Update all published devices of a node, by its name."""
        uid = self.uid(node)
        self._unindex(uid)
        self._devices[node] = tuple(devices)
        self._index(uid)

    def record_issued(self, uid: str, marks: NodeMarks) -> None:
        """Record that marks of a node are being written. They count together with the observed ones until
        they are observed.
        """
        self._unindex(uid)
        self._pending[uid] = marks
        self._written.discard(uid)
        self._index(uid)

    def record_written(self, uid: str, state: str) -> None:
        """Record that a state annotation is written. If it is the latest issued one, the next observation of
        the Node has it, or a later state.
        """
        if uid in self._pending and encode_record(self._pending[uid].node) == state:
            self._written.add(uid)

    def record_failed(self, uid: str) -> None:
        """Record that a write failed."""
        if uid in self._pending:
            self._unindex(uid)
            del self._pending[uid]
            self._written.discard(uid)
            self._index(uid)

    def drop_issued(self) -> list[str]:
        """Drop all writes on their way. Returns the uids of their nodes."""
        dropped = list(self._pending)
        for uid in dropped:
            self.record_failed(uid)
        return dropped

    def pending_nodes(self) -> tuple[str, ...]:
        """Return the uids of nodes with a write on its way."""
        return tuple(self._pending)

    def marks(self, uid: str) -> NodeMarks:
        """Return the marks of a node, with a write on its way."""
        return self._pending.get(uid) or self._observed.get(uid, NodeMarks())

    def observed_marks(self, uid: str) -> NodeMarks:
        """Return the marks that are observed on a node and its devices."""
        return self._observed.get(uid, NodeMarks())

    def is_pending(self, uid: str) -> bool:
        """Return whether a write for a node is on its way."""
        return uid in self._pending

    def is_taint_removed(self, uid: str, key: str) -> bool:
        """Return whether another client removed a taint, by its key."""
        return key in self._removed_taints.get(uid, ())

    def uid(self, name: str) -> str:
        """Return the uid of the Node of a name; empty if there is none."""
        return self._names.get(name, "")

    def marked_nodes(self) -> Iterator[str]:
        """Yield the uids of nodes with a record, observed or on its way."""
        yield from self._recorded | self._pending.keys()

    def device_finder(self, uid: str) -> FindDevice:
        """Return a finder of the node's devices; it finds none unless the policy marks devices."""
        node = self.nodes.get(uid)
        devices = self._devices.get(node.name, ()) if node and self.policy.marks.device else ()

        def find(target: str, component: str) -> Device | None:
            return next(
                (
                    device_selector(device)
                    for device in devices
                    if (device.uuid and device.uuid == component) or gpu_target(device.address) == target
                ),
                None,
            )

        return find

    def rule_names(self, uid: str) -> Iterable[str]:
        """Return the names of the rules of a node's devices, except those with a record that another client
        edited: these stay, like such a taint of a Node.
        """
        return tuple(
            name
            for name, rule in self._rules_by_node.get(uid, {}).items()
            if _quarantine_record(rule) is not None
        )

    def orphaned_rules(self) -> Iterator[str]:
        """Yield the names of rules with a Node or device that no longer exists."""
        for rule in self.rules.values():
            device = Device(rule.node, rule.driver, rule.pool, rule.device)
            if rule.uid not in self.nodes or self.is_device_gone(device):
                yield rule.name

    def is_device_gone(self, device: Device) -> bool:
        """Return whether a node publishes devices and this one is not among them."""
        devices = self._devices.get(device.node, ())
        return bool(devices) and all(device_selector(published) != device for published in devices)

    def _observe(self, uid: str) -> None:
        """Update the observed marks of a node; pending ones that are observed are not pending any more."""
        record = decode_record(self.nodes[uid].annotations.get(STATE_ANNOTATION, "")) or MarkRecord()
        devices = {
            Device(rule.node, rule.driver, rule.pool, rule.device): rule_record
            for rule in self._rules_by_node.get(uid, {}).values()
            if (rule_record := _quarantine_record(rule)) is not None
        }
        self._observed[uid] = NodeMarks(record, devices)
        if self._observed[uid] == NodeMarks():
            self._recorded.discard(uid)
        else:
            self._recorded.add(uid)
        if uid in self._written:
            # Its devices have rules of their own, which are written before or after it.
            self._written.discard(uid)
            self._pending[uid] = replace(self._pending[uid], node=record)
        if self._pending.get(uid) == self._observed[uid]:
            del self._pending[uid]

    def _record_removed_taints(self, old: Node | None, new: Node) -> None:
        """Record which taints of nodeguard another client removed."""
        after = frozenset(taint.key for taint in new.taints)
        before = frozenset(taint.key for taint in old.taints) if old is not None else frozenset()
        # If the policy writes no taints, nodeguard itself removes them.
        ours = not self.policy.marks.taint or new.uid in self._pending
        removed = (self._removed_taints.get(new.uid, frozenset()) | (frozenset() if ours else before)) - after
        if removed:
            self._removed_taints[new.uid] = removed
        else:
            self._removed_taints.pop(new.uid, None)

    def _reindex(self, uid: str) -> None:
        if uid in self.nodes:
            self._unindex(uid)
            self._observe(uid)
            self._index(uid)

    def _index(self, uid: str) -> None:
        node = self.nodes.get(uid)
        if node is None:
            return
        # With a DRA driver in place of the device plugin, the Node itself has no GPU resource.
        devices = self._devices.get(node.name, ())
        gpus = node.gpus or len({device.address or device.name for device in devices})
        # A marked node counts, though its driver is broken and its agent stale.
        if not (gpus or uid in self._agents or uid in self._recorded or uid in self._pending):
            self._forget_domains(uid)
            return
        moved = self.topologies.update_node(uid, node.name, node.labels)
        paths = self.topologies.paths(uid)
        placement = place_node(
            self.policy, node, self.marks(uid).node, gpus, paths, self.observed_marks(uid).node
        )
        self.placements[uid] = placement
        self.budgets.add_node(placement)
        self.liveness.add_node(uid)
        usage = node_usage(placement, self._observed.get(uid, NodeMarks()), self._pending.get(uid))
        if usage.charges or usage.past:
            self.usage[uid] = usage
            self.budgets.charge(usage)
        if moved:
            self._reindex_all()

    def _forget_domains(self, uid: str) -> None:
        """Remove a node from the topologies: it does not belong to the fleet (yet)."""
        if self.topologies.remove_node(uid):
            self._reindex_all()

    def _reindex_all(self) -> None:
        """Place every node again: the domains of all may have changed."""
        self.topology_version += 1
        for uid in list(self.placements):
            self._unindex(uid)
            self._index(uid)

    def _unindex(self, uid: str) -> None:
        placement = self.placements.pop(uid, None)
        if placement is not None:
            self.budgets.add_node(placement, -1)
            self.liveness.remove_node(uid)
        usage = self.usage.pop(uid, None)
        if usage is not None:
            self.budgets.charge(usage, -1)


def _quarantine_record(rule: DeviceRule) -> MarkRecord | None:
    """Return the record of a rule; None if it has no cause of a quarantine."""
    record = decode_record(rule.state)
    if record is None or all(cause.mark != Mark.QUARANTINE for cause in record.causes):
        return None
    return record


def device_selector(device: Device) -> Device:
    """Return the device in the form that a device rule selects."""
    return Device(device.node, device.driver, device.pool, device.name)
