"""The roster: every node, where it sits, what it holds, and the ledgers that are charged with it.

Changes node by node, so that a plan after one change need not look at all the others. No input, output or
clock: times are arguments.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator

from msgspec.structs import replace

from nodeguard.fleet.decide.mark_requests import FindDevice
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


class FleetState:
    """All nodes, by uid.

    charged: what each is charged with, of those that are with anything. ledgers: charged with all of it.
    attendance: who of the seated is heard. views: what nodes share. moves: how often that came to be others
    for all of them.
    """

    def __init__(self, policy: Policy, known: Container[str]) -> None:
        """known: see Ledgers."""
        self.policy = policy
        self.nodes: dict[str, Node] = {}
        self.placements: dict[str, NodePlacement] = {}
        self.usage: dict[str, NodeUsage] = {}
        self.rules: dict[str, DeviceRule] = {}
        self.budgets = BudgetUsage(policy, known)
        self.liveness = AgentLiveness(self.placements)
        self.topologies = Topologies(policy)
        self.topology_version = 0
        self._known = known
        self._heard: set[str] = set()
        self._names: dict[str, str] = {}
        self._remembered: set[str] = set()
        self._observed: dict[str, NodeMarks] = {}
        self._pending: dict[str, NodeMarks] = {}
        self._landed: set[str] = set()
        self._devices: dict[str, tuple[Device, ...]] = {}
        self._marked: dict[str, dict[str, DeviceRule]] = defaultdict(dict)
        self._taken: dict[str, frozenset[str]] = {}

    def set_policy(self, policy: Policy) -> None:
        """Another policy: every node is seated and charged anew."""
        for uid in self.nodes:
            self._rise(uid)
        self.policy, self.budgets = policy, BudgetUsage(policy, self._known)
        self.topologies.set_policy(policy)
        self.topology_version += 1
        for uid in self.nodes:
            self._sit(uid)

    def update_node(self, node: Node) -> None:
        """A Node as it is now."""
        self._rise(node.uid)
        self._take(self.nodes.get(node.uid), node)
        self.nodes[node.uid] = node
        self._names[node.name] = node.uid
        self._see(node.uid)
        self._sit(node.uid)

    def remove_node(self, uid: str) -> None:
        """A Node that is no more."""
        self._rise(uid)
        node = self.nodes.pop(uid, None)
        if node is not None and self._names.get(node.name) == uid:
            del self._names[node.name]
        self._observed.pop(uid, None)
        self._remembered.discard(uid)
        self._pending.pop(uid, None)
        self._landed.discard(uid)
        self._heard.discard(uid)
        self._taken.pop(uid, None)
        self._leave(uid)

    def choose_topologies(self) -> None:
        """Every Node has been told of: what they share is the same in whatever order that was."""
        if self.topologies.choose():
            self._move()

    def import_topologies(self, ways: Iterable[TopologyLabels]) -> None:
        """Ways in which nodes share something, as the cluster's own objects declare them: all of these."""
        if self.topologies.import_schemes(ways):
            self._move()

    def add_agent(self, uid: str) -> None:
        """An agent speaks for a node, which thereby belongs to the fleet, GPUs or not."""
        if uid not in self._heard:
            self._rise(uid)
            self._heard.add(uid)
            self._sit(uid)

    def update_rule(self, rule: DeviceRule) -> None:
        """A device rule as it is now."""
        self.rules[rule.name] = rule
        self._marked[rule.uid][rule.name] = rule
        self._again(rule.uid)

    def remove_rule(self, name: str) -> None:
        """A device rule that is no more."""
        rule = self.rules.pop(name, None)
        if rule is not None:
            self._marked[rule.uid].pop(name, None)
            self._again(rule.uid)

    def update_devices(self, node: str, devices: Iterable[Device]) -> None:
        """The devices of a node, by its name: all that are published."""
        uid = self.uid(node)
        self._rise(uid)
        self._devices[node] = tuple(devices)
        self._sit(uid)

    def record_issued(self, uid: str, holding: NodeMarks) -> None:
        """What a node holds is about to be written: it counts, beside what is there, until that is seen."""
        self._rise(uid)
        self._pending[uid] = holding
        self._landed.discard(uid)
        self._sit(uid)

    def record_written(self, uid: str, state: str) -> None:
        """A text of STATE is written; where it is what was issued last, the Node as it is seen next tells of
        it, or of what came after.
        """
        if uid in self._pending and encode_record(self._pending[uid].node) == state:
            self._landed.add(uid)

    def record_failed(self, uid: str) -> None:
        """What was about to be written will not be."""
        if uid in self._pending:
            self._rise(uid)
            del self._pending[uid]
            self._landed.discard(uid)
            self._sit(uid)

    def drop_issued(self) -> list[str]:
        """Nothing that was about to be written will be. Returns whose that was."""
        dropped = list(self._pending)
        for uid in dropped:
            self.record_failed(uid)
        return dropped

    def pending_nodes(self) -> tuple[str, ...]:
        """Nodes on which something is about to be written."""
        return tuple(self._pending)

    def marks(self, uid: str) -> NodeMarks:
        """What a node holds, or is about to."""
        return self._pending.get(uid) or self._observed.get(uid, NodeMarks())

    def observed_marks(self, uid: str) -> NodeMarks:
        """What is remembered on a node and its devices now."""
        return self._observed.get(uid, NodeMarks())

    def is_pending(self, uid: str) -> bool:
        """Whether something is about to be written on a node."""
        return uid in self._pending

    def is_taint_removed(self, uid: str, key: str) -> bool:
        """Whether somebody else took a taint away that was there, by its key."""
        return key in self._taken.get(uid, ())

    def uid(self, name: str) -> str:
        """The uid of the Node of a name; empty where there is none."""
        return self._names.get(name, "")

    def marked_nodes(self) -> Iterator[str]:
        """Nodes of which anything is remembered."""
        yield from self._remembered | self._pending.keys()

    def device_finder(self, uid: str) -> FindDevice:
        """Finds devices of a node. None of them while the policy does not want devices marked."""
        node = self.nodes.get(uid)
        devices = self._devices.get(node.name, ()) if node and self.policy.marks.device else ()

        def find(slot: str, part: str) -> Device | None:
            return next(
                (
                    device_selector(one)
                    for one in devices
                    if (one.uuid and one.uuid == part) or gpu_target(one.address) == slot
                ),
                None,
            )

        return find

    def rule_names(self, uid: str) -> Iterable[str]:
        """Names of the rules of a node's devices, but for those whose record somebody has edited: like such
        a taint of a Node, they stay.
        """
        return tuple(name for name, rule in self._marked.get(uid, {}).items() if _kept(rule) is not None)

    def orphaned_rules(self) -> Iterator[str]:
        """Names of rules whose node or device is gone: of a node that publishes others, but not this one."""
        for rule in self.rules.values():
            its = Device(rule.node, rule.driver, rule.pool, rule.device)
            if rule.uid not in self.nodes or self.is_device_gone(its):
                yield rule.name

    def is_device_gone(self, device: Device) -> bool:
        """Whether a node publishes devices, and this one is not among them any more."""
        devices = self._devices.get(device.node, ())
        return bool(devices) and all(device_selector(one) != device for one in devices)

    def _see(self, uid: str) -> None:
        """What a node holds, from what is written on it; what was pending and is seen there is so no more."""
        record = decode_record(self.nodes[uid].annotations.get(STATE_ANNOTATION, "")) or MarkRecord()
        devices = {
            Device(rule.node, rule.driver, rule.pool, rule.device): kept
            for rule in self._marked.get(uid, {}).values()
            if (kept := _kept(rule)) is not None
        }
        self._observed[uid] = NodeMarks(record, devices)
        if self._observed[uid] == NodeMarks():
            self._remembered.discard(uid)
        else:
            self._remembered.add(uid)
        if uid in self._landed:
            # Its devices have rules of their own, which are written before or after it.
            self._landed.discard(uid)
            self._pending[uid] = replace(self._pending[uid], node=record)
        if self._pending.get(uid) == self._observed[uid]:
            del self._pending[uid]

    def _take(self, old: Node | None, new: Node) -> None:
        """Note what of nodeguard's taints is not there any more though nodeguard did not take it away."""
        there = frozenset(one.key for one in new.taints)
        had = frozenset(one.key for one in old.taints) if old is not None else frozenset()
        # Where taints are not to be written, it is nodeguard that takes them away.
        ours = not self.policy.marks.taint or new.uid in self._pending
        taken = (self._taken.get(new.uid, frozenset()) | (frozenset() if ours else had)) - there
        if taken:
            self._taken[new.uid] = taken
        else:
            self._taken.pop(new.uid, None)

    def _again(self, uid: str) -> None:
        if uid in self.nodes:
            self._rise(uid)
            self._see(uid)
            self._sit(uid)

    def _sit(self, uid: str) -> None:
        node = self.nodes.get(uid)
        if node is None:
            return
        # Where a DRA driver stands in for the device plugin, the Node itself tells of none.
        gpus = node.gpus or len({one.address or one.name for one in self._devices.get(node.name, ())})
        # One that carries a mark is charged, though its driver is dead and its agent silent.
        if not (gpus or uid in self._heard or uid in self._remembered or uid in self._pending):
            self._leave(uid)
            return
        others_moved = self.topologies.update_node(uid, node.name, node.labels)
        paths = self.topologies.paths(uid)
        seated = place_node(
            self.policy, node, self.marks(uid).node, gpus, paths, self.observed_marks(uid).node
        )
        self.placements[uid] = seated
        self.budgets.add_node(seated)
        self.liveness.add_node(uid)
        stands = node_usage(seated, self._observed.get(uid, NodeMarks()), self._pending.get(uid))
        if stands.charges or stands.past:
            self.usage[uid] = stands
            self.budgets.charge(stands)
        if others_moved:
            self._move()

    def _leave(self, uid: str) -> None:
        """A node is not, or not yet, of the fleet."""
        if self.topologies.remove_node(uid):
            self._move()

    def _move(self) -> None:
        """Everybody's domains may be others than before."""
        self.topology_version += 1
        for uid in list(self.placements):
            self._rise(uid)
            self._sit(uid)

    def _rise(self, uid: str) -> None:
        seated = self.placements.pop(uid, None)
        if seated is not None:
            self.budgets.add_node(seated, -1)
            self.liveness.remove_node(uid)
        stands = self.usage.pop(uid, None)
        if stands is not None:
            self.budgets.charge(stands, -1)


def _kept(rule: DeviceRule) -> MarkRecord | None:
    """What is remembered on a rule; None where that does not say why the device is kept from work."""
    record = decode_record(rule.state)
    if record is None or all(cause.mark != Mark.QUARANTINE for cause in record.causes):
        return None
    return record


def device_selector(device: Device) -> Device:
    """What a rule selects a device by."""
    return Device(device.node, device.driver, device.pool, device.name)
