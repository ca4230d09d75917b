"""A fleet for tests: Nodes, reports of their agents, and a planner with plans that are carried out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from nodeguard.executors.kube.desired import DesiredNode, DeviceRule
from nodeguard.fleet.plan_loop import PlanLoop
from nodeguard.fleet.state.node_marks import decode_record
from nodeguard.model.device import Device
from nodeguard.model.diagnosis import SuppressionPolicy
from nodeguard.model.finding import Action, DataStatus, Health
from nodeguard.model.incident import Incident, IncidentState
from nodeguard.model.instant import Instant
from nodeguard.model.mark import STATE_ANNOTATION, MarkRecord
from nodeguard.model.node import PREFIX, Node, Taint
from nodeguard.model.policy import Budget, CheckLimit, GracePeriods, Mode, Policy, SoakPeriod, TopologyLabels
from nodeguard.wire.report import (
    VERSION,
    Inventory,
    Report,
    ReportedEvidence,
    ReportedFinding,
    ReportedInjection,
    ReportedPassing,
)
from tests.fleet.cluster_planner import ClusterPlan, ClusterPlanner, apply_desired
from tests.policies import diagnosis_policy

_EMPTY = Inventory()

CHECKS = ("gpu-lost", "gpu-ecc", "port-down", "gpu-hot")

# Nothing waits, no budget binds, and no check is doubted.
WIDE = Budget(1.0, 0.0, 1.0, 1.0, 1.0, check=CheckLimit(10_000, 600.0, 10_000))
AT_ONCE = Policy(
    mode=Mode.ENFORCE,
    budget=WIDE,
    grace=GracePeriods(0.0, 0.0, 0.0),
    soak=SoakPeriod(0.0, 0.0, 86_400.0),
    diagnosis=diagnosis_policy(suppression=SuppressionPolicy(min_nodes=10_000)),
)


def finding(check: str = "gpu-lost", target: str = "gpu/0000:3b:00", **more: Any) -> ReportedFinding:
    """Return a fatal, fresh finding of a minute ago."""
    values: dict[str, Any] = {
        "health": Health.FATAL, "component": "GPU-1", "action": Action.RESET_GPU, "age": 60.0, "family": "gpu-bus",
        "message": f"{check} at {target}", "evidence": (ReportedEvidence("nvml", "gone"),),
    }  # fmt: skip
    return ReportedFinding(check=check, target=target, **{**values, **more})


def in_order(checks: Iterable[str] = CHECKS, targets: Iterable[str] = ("gpu/0000:3b:00",)) -> ReportedPassing:
    return ReportedPassing(tuple(checks), tuple(targets))


class Fleet:
    """Nodes of eight GPUs each, in racks of eight, with a clock that the test advances. topologies: see Planner."""

    topologies: Mapping[str, Collection[str]] = {}

    def __init__(self, size: int, policy: Policy = AT_ONCE) -> None:
        self.policy = policy
        self.wall = 1_700_000_000.0
        self.mono = 10_000.0
        self.started = self.wall
        self.nodes: dict[str, Node] = {}
        self.rules: dict[str, DeviceRule] = {}
        self.devices: dict[str, tuple[Device, ...]] = {}
        self.declared: tuple[TopologyLabels, ...] = ()
        self.reports: dict[str, Report] = {}
        self.received: dict[str, Instant] = {}
        self.planner = ClusterPlanner(policy, CHECKS, topologies=self.topologies)
        for number in range(size):
            self.add(number)

    @property
    def now(self) -> Instant:
        return Instant(self.wall, self.mono, "aggregator")

    def add(self, number: int, **more: Any) -> str:
        """Add a Node with a healthy report."""
        uid = f"uid-{number}"
        labels = {"rack": f"r{number // 8}", "pool": "a" if number % 2 else "b"}
        self.see(Node(**{"name": f"node-{number}", "uid": uid, "labels": labels, "gpus": 8, **more}))
        self.report(number)
        return uid

    def see(self, node: Node) -> None:
        self.nodes[node.uid] = node
        self.planner.observe_node(node)

    def declare(self, *topologies: TopologyLabels) -> None:
        """Declare topologies as objects of the cluster do."""
        self.declared = topologies
        self.planner.state.import_topologies(topologies)

    def change(self, number: int, **more: Any) -> None:
        """Change a Node as another client does."""
        self.see(replace(self.nodes[f"uid-{number}"], **more))

    def report(
        self,
        number: int,
        *findings: ReportedFinding,
        proven: tuple[ReportedPassing, ...] | None = None,
        inventory: Inventory = _EMPTY,
        injected: tuple[ReportedFinding, ...] = (),
        age: float = 0.0,
        received: dict[str, float] | None = None,
    ) -> None:
        """Report findings and passing checks of a node; all checks pass if there is no finding. injected: faults
        that an operator injected for ten minutes. age: seconds since the verdict.
        received: ages of new versions, by domain.
        """
        uid = f"uid-{number}"
        if proven is None:
            proven = () if findings else (in_order(),)
        health = max(
            (finding.health for finding in findings), key=lambda finding: finding.rank, default=Health.OK
        )
        self.reports[uid] = Report(
            version=VERSION, node=f"node-{number}", boot_id="b", sequence=1, health=health,
            data_status=DataStatus.FRESH, findings=findings, passing=proven, inventory=inventory, age=age,
            injections=tuple(ReportedInjection(fault, "uid 0", 600.0) for fault in injected),
            received=received or {},
        )  # fmt: skip
        self.received[uid] = self.now
        self.planner.record_report(uid, self.reports[uid], self.now)

    def after(self, seconds: float, quiet: Collection[str] = ()) -> None:
        """Advance the time; every agent sends a heartbeat, except those of the nodes in `quiet`."""
        self.wall += seconds
        self.mono += seconds
        now = self.now
        for uid in self.reports.keys() - set(quiet):
            self.planner.record_heartbeat(uid, now)
        self.planner.tick(now)

    def plan(self) -> ClusterPlan:
        return self.planner.plan(self.now)

    def issue(self, limit: int | None = None) -> ClusterPlan:
        """Plan, and issue the plan; the test writes it."""
        plan = PlanLoop(self.planner).step(self.now, limit).plan
        assert isinstance(plan, ClusterPlan)
        return plan

    def carry_out(self, rounds: int = 3) -> ClusterPlan:
        """Plan and write until nothing is left to do; returns the first plan, with the incidents and Events of
        all plans: a mark is reported once it is observed.
        """
        first = plan = self.issue()
        incidents, events = {item.name: item for item in plan.incidents}, list(plan.events)
        for _ in range(rounds):
            self.write(plan)
            plan = self.issue()
            incidents |= {item.name: item for item in plan.incidents}
            events += plan.events
            if not (plan.nodes or plan.rules or plan.rules_gone):
                return replace(first, incidents=tuple(incidents.values()), events=tuple(events))
        raise AssertionError(f"the plan does not come to rest: {plan}")

    def write(self, plan: ClusterPlan) -> None:
        for node in plan.nodes:
            self.mark(node)
        for rule in plan.rules:
            self.rules[rule.name] = rule
            self.planner.observe_rule(rule)
        for name in plan.rules_gone:
            self.rules.pop(name, None)
            self.planner.forget_rule(name)

    def mark(self, what: DesiredNode) -> None:
        """Write on a Node as the executor does."""
        self.see(apply_desired(self.nodes[what.uid], what))

    def restart(
        self, granted: IncidentState = IncidentState.MARKED, incidents: Iterable[Incident] | None = None
    ) -> None:
        """Start a new aggregator, which has only Nodes, rules, reports and the recorded incidents: all, if None."""
        recorded = self.planner.all_incidents() if incidents is None else tuple(incidents)
        self.planner = ClusterPlanner(self.policy, CHECKS, granted, self.topologies)
        for node in self.nodes.values():
            self.planner.observe_node(node)
        self.planner.state.import_topologies(self.declared)
        for name, devices in self.devices.items():
            self.planner.update_devices(name, devices)
        for rule in self.rules.values():
            self.planner.observe_rule(rule)
        for uid, report in self.reports.items():
            self.received[uid] = self.now
            self.planner.record_report(uid, report, self.now)
        self.planner.restore_incidents(recorded)
        self.planner.restore_term(self.started, self.wall, self.now)
        self.started = self.wall
        self.planner.tick(self.now)

    def record(self, number: int = 0) -> MarkRecord:
        """Return the record on a Node."""
        decoded = decode_record(self.nodes[f"uid-{number}"].annotations.get(STATE_ANNOTATION, ""))
        assert decoded is not None
        return decoded

    def incidents(self, number: int = 0) -> list[Incident]:
        return list(self.planner.tracker.recorded.by_uid.get(f"uid-{number}", {}).values())

    def reasons(self) -> set[str]:
        """Return the reasons of all decisions that have one."""
        decisions = (item for of_node in self.planner.tracker.decisions.values() for item in of_node)
        return {decision.reason for decision in decisions if decision.reason}

    def taints(self, number: int) -> list[str]:
        return [f"{taint.key}={taint.value}" for taint in self.nodes[f"uid-{number}"].taints]

    def marked(self) -> list[int]:
        """Numbers of the nodes that are marked."""
        return sorted(
            int(uid.removeprefix("uid-"))
            for uid, node in self.nodes.items()
            if any(taint.key.startswith(PREFIX) for taint in node.taints)
        )

    def publish(self, number: int, count: int = 8) -> None:
        """A DRA driver publishes the GPUs of a node: PCI buses 3b, 3c, …"""
        name = f"node-{number}"
        self.devices[name] = tuple(
            Device(name, "gpu.nvidia.com", name, f"gpu-{at}", f"0000:{0x3B + at:02x}:00", f"GPU-{at}")
            for at in range(count)
        )
        self.planner.update_devices(name, self.devices[name])


def foreign(key: str = "nvidia.com/gpu", value: str = "present") -> Taint:
    return Taint(key, "NoSchedule", value)


def states(fleet: Fleet) -> dict[str, IncidentState]:
    return {incident.target: incident.state for incident in fleet.planner.all_incidents()}
