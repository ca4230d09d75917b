"""The aggregator of a world: the planner, its inputs and its report handler, without the network."""

from __future__ import annotations

from collections.abc import Callable

from nodeguard.aggregator.fleet_inputs import FleetInputs
from nodeguard.aggregator.identity.caller import RequestRefusedError, VerifiedIdentity, authorize
from nodeguard.aggregator.outbox import InstructionOutbox
from nodeguard.aggregator.report_handler import ReportHandler
from nodeguard.executors.kube.desired import DeviceRule
from nodeguard.fleet.state.liveness import may_act
from nodeguard.model.instant import Instant
from nodeguard.model.inventory import NO_OBSERVED_MARKS
from nodeguard.model.node import Node
from nodeguard.model.policy import Policy
from nodeguard.wire.instruction import Reply
from nodeguard.wire.report import Message, Report
from tests.fleet.cluster_planner import ClusterPlanner
from tests.worlds.agents import CATALOGUE
from tests.worlds.cluster import WorldCluster

# Seconds between two removals of deleted nodes.
_FORGET = 60.0


class WorldAggregator:
    """One aggregator from its start. accepted: the latest report of each uid that it accepted; confirmed:
    uids with an accepted heartbeat after it; messages: when each uid sent an accepted message last.
    """

    def __init__(
        self, policy: Policy, cluster: WorldCluster, paused: str, now: Callable[[], Instant]
    ) -> None:
        self.planner = ClusterPlanner(policy, CATALOGUE)
        outbox = InstructionOutbox()
        self.inputs = FleetInputs(self.planner, lambda: None, now)
        self.handler = ReportHandler(self.planner, self.inputs, outbox, now)
        self.started = self._forgot = now().mono
        self.accepted: dict[str, Report] = {}
        self.confirmed: set[str] = set()
        self.messages: dict[str, float] = {}
        self._now = now
        for name, devices in cluster.devices.items():
            self.planner.cluster.update_devices(name, devices)
            self.inputs.devices_changed(name, devices)
        for node in cluster.nodes.values():
            self.node_changed(node)
        self.inputs.nodes_listed()
        for rule in cluster.rules.values():
            self.rule_changed(rule)
        self.inputs.incidents_listed(cluster.incidents.values())
        for decision in cluster.decisions.values():
            self.inputs.incident_decided(decision, is_new=False)
        self.inputs.fleet_decided(paused)

    def node_changed(self, node: Node) -> None:
        """Observe a Node that is new or has changed."""
        cluster = self.planner.cluster
        is_changed = cluster.differs(node)
        self.inputs.node_changed(*cluster.update_node(node), is_changed=is_changed)

    def rule_changed(self, rule: DeviceRule) -> None:
        """Observe a device rule that is new or has changed."""
        self.planner.cluster.update_rule(rule)
        self._observe(rule.uid)

    def rule_deleted(self, name: str) -> None:
        """Observe that a device rule is deleted."""
        rule = self.planner.cluster.remove_rule(name)
        if rule is not None:
            self._observe(rule.uid)

    def _observe(self, uid: str) -> None:
        cluster = self.planner.cluster
        observed = cluster.observed(uid) if uid in cluster.nodes else NO_OBSERVED_MARKS
        self.inputs.marks_observed(uid, observed)

    def receive(self, message: Message, token_node: str, token_uid: str) -> Reply | None:
        """Handle a message with the credential of a node; None if it is refused."""
        try:
            caller = authorize(VerifiedIdentity((token_node,), token_uid), message.node)
            before = self.planner.reports.get(caller.uid)
            reply = self.handler(caller, message)
        except RequestRefusedError:
            return None
        now = self._now().mono
        if isinstance(message, Report):
            if self.planner.reports.get(caller.uid) is not before:
                self.accepted[caller.uid], self.messages[caller.uid] = message, now
                self.confirmed.discard(caller.uid)
        elif not reply.resend:
            self.confirmed.add(caller.uid)
            self.messages[caller.uid] = now
        return reply

    def tick(self) -> bool:
        """Update what depends on time. Returns whether the aggregator may act."""
        now = self._now()
        self.planner.tick(now)
        if now.mono - self._forgot >= _FORGET:
            self._forgot = now.mono
            self.handler.forget(now.mono)
        return may_act(self.planner.state.stale_agents(now), self.started, now.mono)
