"""A planner with a cluster of Nodes and device rules: its plans have the writes of Kubernetes, too."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from msgspec.structs import replace

from nodeguard.executors.kube.cluster import ClusterWrites, ObservedCluster, inventory_node
from nodeguard.executors.kube.desired import DesiredNode, DeviceRule
from nodeguard.executors.owners import NodeOwners
from nodeguard.fleet.plan import Plan
from nodeguard.fleet.planner import Planner
from nodeguard.model.device import Device
from nodeguard.model.incident import IncidentState
from nodeguard.model.instant import Instant
from nodeguard.model.inventory import NO_OBSERVED_MARKS, InventoryNode
from nodeguard.model.mark import STATE_ANNOTATION, MarkRecord
from nodeguard.model.node import PREFIX, Node
from nodeguard.model.policy import Policy

_ANY_TOPOLOGY: Mapping[str, Collection[str]] = {}


def inventory(node: Node) -> InventoryNode:
    """Return a Node as the fleet half sees it."""
    return inventory_node(node, MarkRecord())


def apply_desired(node: Node, desired: DesiredNode) -> Node:
    """Return the Node after a write of its desired state: fields of others stay, and so does a condition that
    only has another message.
    """
    annotations = {key: text for key, text in node.annotations.items() if key != STATE_ANNOTATION}
    if desired.state:
        annotations[STATE_ANNOTATION] = desired.state
    wanted, condition = desired.condition, node.condition
    if wanted is not None and wanted.replaces(condition):
        condition = replace(wanted, message=wanted.short_message) if wanted.status else None
    foreign = tuple(taint for taint in node.taints if not taint.key.startswith(PREFIX))
    return replace(
        node,
        taints=(*foreign, *desired.taints),
        annotations=annotations,
        unschedulable=node.unschedulable if desired.cordon is None else desired.cordon,
        condition=condition,
    )


class ClusterPlan(Plan, frozen=True, eq=False):
    """A plan, and the writes that carry its decisions out. nodes, rules, rules_gone: see ClusterWrites."""

    nodes: tuple[DesiredNode, ...] = ()
    rules: tuple[DeviceRule, ...] = ()
    rules_gone: tuple[str, ...] = ()

    def __eq__(self, other: object) -> bool:
        """Compare only the plans, so that an empty one equals NO_CHANGE."""
        if not isinstance(other, Plan):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in Plan.__struct_fields__)

    def __hash__(self) -> int:
        return hash(self.deferred)

    @property
    def writes(self) -> ClusterWrites:
        return ClusterWrites(self.nodes, self.rules, self.rules_gone)


class ClusterPlanner(Planner):
    """A planner, and the objects that it observes."""

    def __init__(
        self,
        policy: Policy,
        checks: Iterable[str],
        granted: IncidentState = IncidentState.MARKED,
        topologies: Mapping[str, Collection[str]] = _ANY_TOPOLOGY,
        owners: NodeOwners | None = None,
    ) -> None:
        self.cluster = ObservedCluster(owners)
        super().__init__(policy, checks, granted, topologies, self.cluster.carries)

    def observe_node(self, node: Node) -> None:
        """Observe a Node that is new or has changed."""
        is_changed = self.cluster.differs(node)
        self.update_node(*self.cluster.update_node(node), is_changed=is_changed)

    def remove_node(self, uid: str) -> None:
        self.cluster.remove_node(uid)
        super().remove_node(uid)

    def observe_rule(self, rule: DeviceRule) -> None:
        """Observe a device rule that is new or has changed."""
        self.cluster.update_rule(rule)
        self._observe(rule.uid)

    def forget_rule(self, name: str) -> None:
        """Observe that a device rule is deleted."""
        rule = self.cluster.remove_rule(name)
        if rule is not None:
            self._observe(rule.uid)

    def update_devices(self, node: str, devices: Iterable[Device]) -> None:
        published = tuple(devices)
        self.cluster.update_devices(node, published)
        super().update_devices(node, published)

    def plan(self, now: Instant, limit: int | None = None) -> ClusterPlan:
        return self.with_writes(super().plan(now, limit))

    def with_writes(self, plan: Plan) -> ClusterPlan:
        """Return a plan with its writes, and those that remove rules without a Node."""
        writes = self.cluster.writes(plan.decisions, self.policy.marks)
        fields = {name: getattr(plan, name) for name in plan.__struct_fields__}
        return ClusterPlan(**fields, nodes=writes.nodes, rules=writes.rules, rules_gone=writes.rules_gone)

    def record_issued(self, plan: Plan) -> None:
        super().record_issued(plan)
        if isinstance(plan, ClusterPlan):
            self.cluster.record_issued(plan.writes)

    def drop_issued(self) -> tuple[str, ...]:
        self.cluster.drop_issued()
        return super().drop_issued()

    def removal_plan(self) -> ClusterPlan:
        """Return the plan that removes every mark."""
        writes = self.cluster.removal()
        return ClusterPlan(nodes=writes.nodes, rules_gone=writes.rules_gone)

    def _observe(self, uid: str) -> None:
        is_known = uid in self.cluster.nodes
        self.state.update_observed(uid, self.cluster.observed(uid) if is_known else NO_OBSERVED_MARKS)
