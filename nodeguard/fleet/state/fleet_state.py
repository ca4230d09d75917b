"""The fleet state: all nodes with their reports, placement, marks and usage of budgets, indexed by uid.

It changes node by node, so that a plan after one change skips all other nodes. No input, output or clock:
times are arguments.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from nodeguard.fleet.state.budget_usage import BudgetUsage, NodeUsage
from nodeguard.fleet.state.device_index import DeviceIndex, FindDevice
from nodeguard.fleet.state.injections import apply_policy
from nodeguard.fleet.state.latest_report import (
    KnownChecks,
    LatestReport,
    TupleInterner,
    latest_report,
    move_onsets,
)
from nodeguard.fleet.state.liveness import AgentLiveness, StaleAgents
from nodeguard.fleet.state.mark_index import MarkIndex
from nodeguard.fleet.state.marks_in_effect import marks_in_effect
from nodeguard.fleet.state.node_jobs import NodeJobs
from nodeguard.fleet.state.node_marks import node_usage
from nodeguard.fleet.state.node_placement import NodePlacement, place_node
from nodeguard.fleet.state.topology.topologies import Topologies
from nodeguard.fleet.state.wall_clock import WallClock
from nodeguard.model.device import Device
from nodeguard.model.incident import Incident
from nodeguard.model.instant import Instant
from nodeguard.model.inventory import InventoryNode, ObservedMarks
from nodeguard.model.job import NodeJob
from nodeguard.model.mark import MarkCause, NodeMarks
from nodeguard.model.policy import MarkWrites, Policy, TopologyLabels
from nodeguard.wire.report import Report


class FleetState:
    """All nodes, by uid.

    reports: the latest of each node. checks: names of all checks. placements: of the nodes that belong to
    the fleet. marks: the observed and the pending ones. usage: of the nodes that use any budget. budgets: the
    sum of all usage. devices: published devices. liveness: when each agent reported. topologies: the failure
    domains. jobs: of nodes. incident_checks: checks with an incident, by uid of the node. clock: the wall
    clock with its jumps. changes: rises with each change.

    Each change calls `touch`. For the nodes of `take_changed`, all dependent data is computed again.
    """

    def __init__(self, policy: Policy, checks: Iterable[str] = ()) -> None:
        """checks: names of the checks in the catalogue."""
        self.policy = policy
        self.checks = KnownChecks(checks)
        self.nodes: dict[str, InventoryNode] = {}
        self.reports: dict[str, LatestReport] = {}
        self.placements: dict[str, NodePlacement] = {}
        self.usage: dict[str, NodeUsage] = {}
        self.budgets = BudgetUsage(policy, self.checks)
        self.devices = DeviceIndex()
        self.liveness = AgentLiveness(self.placements)
        self.topologies = Topologies(policy)
        self.jobs = NodeJobs()
        self.marks = MarkIndex()
        # The marks in effect of the nodes where they differ from the observed ones.
        self._in_effect: dict[str, NodeMarks] = {}
        self._shared = TupleInterner()
        self._agents: set[str] = set()
        self._names: dict[str, str] = {}
        self.incident_checks: dict[str, frozenset[str]] = {}
        # A dict, for the order of the changes: the same changes lead to the same plans.
        self._changed: dict[str, None] = {}
        self.changes = 0
        self.clock = WallClock()

    def touch(self, uid: str) -> None:
        """Invalidate the data that depends on a node: votes, mark requests, incidents, settled state."""
        self._changed[uid] = None
        self.touch_fleet()

    def touch_fleet(self) -> None:
        """Record a change that is of no single node."""
        self.changes += 1

    def take_changed(self) -> Iterable[str]:
        """Return the uids of the nodes that changed since the last call."""
        changed, self._changed = self._changed, {}
        return changed

    def set_policy(self, policy: Policy) -> None:
        """Set the policy; every placement and all usage is computed again."""
        for uid in self.nodes:
            self._unindex(uid)
        self.policy, self.budgets = policy, BudgetUsage(policy, self.checks)
        self.topologies.set_policy(policy)
        for uid in self.nodes:
            self._update_in_effect(uid)
            self._index(uid)
        for uid, report in self.reports.items():
            if report.injections:
                self.reports[uid] = self._decide_injections(report)
                self.touch(uid)

    def _decide_injections(self, report: LatestReport) -> LatestReport:
        """Return a report with its injected faults accepted or refused by the policy."""
        if not report.injections:
            return report
        rule = self.policy.injection
        decided = apply_policy(report.injections, report.findings, rule, self.checks)
        return replace(report, injections=decided)

    def update_node(
        self, node: InventoryNode, observed: ObservedMarks | None = None, *, is_changed: bool = True
    ) -> None:
        """Update a node. observed: its marks; None for no change. is_changed: whether anything is different
        that the fleet half or an executor uses.
        """
        key = node.key
        # The observation of a pending write may repeat what is known.
        if not is_changed and not self.marks.is_pending(key):
            return
        self._unindex(key)
        self.nodes[key] = node
        self._names[node.name] = key
        self.jobs.update_node(node)
        if observed is not None:
            self._observe(key, observed)
        self._update_in_effect(key)
        self._index(key)

    def update_observed(self, uid: str, observed: ObservedMarks) -> None:
        """Update the observed marks of a node and its devices, if there is such a node."""
        self.touch_fleet()
        if uid in self.nodes:
            self._unindex(uid)
            self._observe(uid, observed)
            self._update_in_effect(uid)
            self._index(uid)

    def remove_node(self, uid: str) -> None:
        """Remove a deleted node."""
        self._unindex(uid)
        node = self.nodes.pop(uid, None)
        if node is not None and self._names.get(node.name) == uid:
            del self._names[node.name]
        self.marks.remove(uid)
        self._in_effect.pop(uid, None)
        self.incident_checks.pop(uid, None)
        self._agents.discard(uid)
        self.jobs.remove_node(uid)
        self._forget_domains(uid)
        self._forget_report(uid)
        self.liveness.forget(uid)

    def follow_clock(self, now: Instant) -> None:
        """Move the onset of every finding with a jump of the wall clock: its age stays the same."""
        jump = self.clock.follow(now)
        if jump:
            self.touch_fleet()
            for uid, report in list(self.reports.items()):
                self.reports[uid] = move_onsets(report, jump)
                self.touch(uid)

    def record_report(self, uid: str, report: Report, now: Instant) -> LatestReport:
        """Record the report of a node; its node belongs to the fleet from then on, even without GPUs."""
        self.follow_clock(now)
        self.add_agent(uid)
        previous = self.reports.get(uid)
        self._forget_report(uid)
        latest = latest_report(report, now, self._shared, previous)
        self.checks.add(group.checks for group in latest.proven)
        latest = self.reports[uid] = self._decide_injections(latest)
        self.liveness.record_report(uid, now.mono)
        self.touch(uid)
        return latest

    def record_heartbeat(self, uid: str, now: Instant) -> bool:
        """Record the heartbeat of a node. Returns whether that confirms a late report."""
        self.liveness.record_report(uid, now.mono)
        latest = self.reports.get(uid)
        if latest is None or not latest.late:
            return False
        self.reports[uid] = replace(latest, late=False)
        self.touch(uid)
        return True

    def stale_agents(self, now: Instant) -> StaleAgents:
        """Return which agents are stale at a time."""
        rule = self.policy.stale
        return self.liveness.stale_agents(now.mono, rule.after, rule.freeze, self.budgets.size)

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

    def update_devices(self, node: str, devices: Iterable[Device]) -> None:
        """Update all published devices of a node, by its name."""
        uid = self.uid(node)
        self._unindex(uid)
        self.devices.update_devices(node, devices)
        self._index(uid)

    def update_jobs(self, uid: str, jobs: tuple[NodeJob, ...]) -> None:
        """Update the jobs of a node's pods."""
        before = self.jobs.jobs(uid)
        if uid in self.nodes:
            self.jobs.update_read(uid, jobs)
        if self.jobs.jobs(uid) != before:
            self.touch(uid)

    def record_issued(self, uid: str, marks: NodeMarks) -> None:
        """Record that marks of a node are being written. They count together with the observed ones until
        they are observed.
        """
        self._unindex(uid)
        self.marks.record_issued(uid, marks)
        self._index(uid)

    def record_failed(self, uid: str) -> None:
        """Record that a write failed."""
        if self.marks.is_pending(uid):
            self._unindex(uid)
            self.marks.record_failed(uid)
            self._index(uid)

    def drop_issued(self) -> tuple[str, ...]:
        """Drop all pending writes. Returns the uids of their nodes."""
        dropped = self.marks.pending_nodes()
        for uid in dropped:
            self.record_failed(uid)
        return dropped

    def record_incidents(self, incidents: Iterable[Incident]) -> None:
        """Record the checks of the incidents of nodes: they support charges in the budgets."""
        for incident in incidents:
            checks = frozenset((incident.cause, *(symptom.check for symptom in incident.symptoms)))
            before = self.incident_checks.get(incident.uid, frozenset())
            if incident.uid and not checks <= before:
                self.incident_checks[incident.uid] = before | checks
                self._uncharge(incident.uid)
                self._charge(incident.uid)

    def is_out(self, uid: str) -> bool:
        """Return whether an operator or nodeguard keeps all new work off a node, beside the marks."""
        return self.nodes[uid].out_by_operator or self.marks.observed(uid).is_out

    def marks_in_effect(self, uid: str) -> NodeMarks:
        """Return the observed marks of a node and its devices that keep work away now."""
        return self._in_effect.get(uid) or self.marks.observed(uid).records

    def drain_marks(self, uid: str) -> list[tuple[Device | None, MarkCause]]:
        """Return the recorded causes of real faults for which work may be evicted, each with its location:
        the node (None) or a device.
        """
        causes = self.marks.observed(uid).records.causes() if uid in self.nodes else ()
        return [(device, cause) for device, cause in causes if cause.mark.kind.drains and not cause.injected]

    def uid(self, name: str) -> str:
        """Return the uid of the node of a name; empty if there is none."""
        return self._names.get(name, "")

    def owned_nodes(self) -> Mapping[str, int]:
        """Return the number of nodes by the name of the webhook that owns them."""
        return Counter(owner for uid in self.placements if (owner := self.nodes[uid].owner))

    def writes(self, uid: str) -> MarkWrites:
        """Return what a mark writes for a node. The receiver of a webhook that owns it gets every mark, and
        none of a single device.
        """
        node = self.nodes.get(uid)
        if node is None or not node.owner:
            return self.policy.marks
        return replace(self.policy.marks, taint=True, cordon=False, device=False)

    def device_finder(self, uid: str) -> FindDevice:
        """Return a finder of the node's devices; it finds none unless the policy marks devices."""
        node = self.nodes.get(uid)
        return self.devices.finder(node.name if node and self.writes(uid).device else "")

    def _observe(self, uid: str, observed: ObservedMarks) -> None:
        # What a receiver accepts is never the removal of a mark by another client.
        writes_marks = self.policy.marks.taint and not self.nodes[uid].owner
        self.marks.observe(uid, observed, writes_marks=writes_marks)

    def _update_in_effect(self, uid: str) -> None:
        """Update which of the observed marks of a node are in effect."""
        observation = self.marks.observed(uid)
        in_effect = observed = observation.records
        if observed.is_marked:
            in_effect = marks_in_effect(observation, self.writes(uid), is_out=self.is_out(uid))
        if in_effect is observed:
            self._in_effect.pop(uid, None)
        else:
            self._in_effect[uid] = in_effect

    def _forget_report(self, uid: str) -> None:
        report = self.reports.pop(uid, None)
        if report is not None:
            self.checks.remove(group.checks for group in report.proven)

    def _index(self, uid: str) -> None:
        node = self.nodes.get(uid)
        if node is None:
            return
        # With a driver that publishes GPUs one by one, the node itself has no number of them.
        gpus = node.gpus or self.devices.count_gpus(node.name)
        # A marked node counts, though its driver is broken and its agent stale.
        if not (gpus or uid in self._agents or self.marks.has_record(uid)):
            self._forget_domains(uid)
            return
        moved = self.topologies.update_node(uid, node.name, node.labels)
        paths = self.topologies.paths(uid)
        placement = place_node(self.policy, node, self.marks.observed(uid), gpus, paths)
        self.placements[uid] = placement
        self.budgets.add_node(placement)
        self.liveness.add_node(uid)
        self._charge(uid)
        if moved:
            self._reindex_all()

    def _charge(self, uid: str) -> None:
        """Charge the budgets with the marks of a node of the fleet."""
        if uid not in self.placements:
            return
        observed, pending = self.marks.observed(uid).records, self.marks.pending(uid)
        usage = node_usage(self.placements[uid], observed, pending, self.incident_checks.get(uid, ()))
        if usage.charges or usage.past:
            self.usage[uid] = usage
            self.budgets.charge(usage)

    def _uncharge(self, uid: str) -> None:
        usage = self.usage.pop(uid, None)
        if usage is not None:
            self.budgets.charge(usage, -1)

    def _forget_domains(self, uid: str) -> None:
        """Remove a node from the topologies: it does not belong to the fleet (yet)."""
        if self.topologies.remove_node(uid):
            self._reindex_all()

    def _reindex_all(self) -> None:
        """Place every node again: the domains of all may have changed."""
        for uid in list(self.placements):
            self._unindex(uid)
            self._index(uid)

    def _unindex(self, uid: str) -> None:
        self.touch(uid)
        placement = self.placements.pop(uid, None)
        if placement is not None:
            self.budgets.add_node(placement, -1)
            self.liveness.remove_node(uid, placement)
        self._uncharge(uid)
