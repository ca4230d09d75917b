"""Property test: the incremental plan equals a plan from scratch, from the same reports, Nodes and inputs."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule
from msgspec.structs import replace

from nodeguard.fleet.decide.admission import MarkDecision
from nodeguard.fleet.planner import Planner
from nodeguard.model.diagnosis import RecoveryPolicy
from nodeguard.model.finding import Action, Health
from nodeguard.model.incident import Incident, IncidentState, WriteState
from nodeguard.model.mark import HOLD_ANNOTATION, MAINTENANCE_ANNOTATION
from nodeguard.model.policy import GracePeriods, Policy, TopologyLabels
from nodeguard.wire.report import Inventory, ReportedEvidence, ReportedFinding
from tests.fleet.cluster_planner import ClusterPlan, ClusterPlanner
from tests.fleet.histories import ALL_PROVEN, SIZE, FleetHistory, findings, numbers, policies
from tests.fleet.scene import CHECKS, WIDE, Fleet, finding, in_order
from tests.policies import diagnosis_policy

PORT = "port/mlx5_0/1"

pytestmark = pytest.mark.slow


def from_inputs(fleet: Fleet) -> ClusterPlanner:
    """Return a new planner with the inputs of the fleet, and with the memory that no input repeats.

    The memory is: writes on their way, the start of each proof, the grants of a dry run, and taints that
    another client removed. The diagnosis starts from the reports only.
    """
    old, new = fleet.planner, ClusterPlanner(fleet.policy, CHECKS)
    for node in fleet.nodes.values():
        new.observe_node(node)
    new.state.import_topologies(fleet.declared)
    for name, devices in fleet.devices.items():
        new.update_devices(name, devices)
    for device_rule in fleet.rules.values():
        new.observe_rule(device_rule)
    # A past charge of a Node counts only with the incident of that check and Node.
    new.restore_incidents(incident for incident in old.all_incidents() if incident.node)
    for uid, report in fleet.reports.items():
        new.record_report(uid, report, fleet.received[uid])
    new.state.liveness.last_reports.update(old.state.liveness.last_reports)
    for uid in old.state.marks.pending_nodes():
        new.state.record_issued(uid, old.state.marks.latest(uid))
    new.state.marks._written = set(old.state.marks._written)
    new.state.marks._removed = dict(old.state.marks._removed)
    new.cluster._issued_rules = copy.deepcopy(old.cluster._issued_rules)
    new.releases.proofs.update(copy.deepcopy(old.releases.proofs))
    new.paused = old.paused
    new.tick(fleet.now)
    new.admissions._dry_run = dict(old.admissions._dry_run)
    return new


def without_caches(planner: ClusterPlanner) -> ClusterPlanner:
    """Return a copy of a planner in which every index and every cached result is computed again."""
    made = copy.deepcopy(planner)
    made.set_policy(made.policy)
    made._shared_incidents._parents.clear()
    made._settled.clear()
    for uid in (*made.state.nodes, *made.tracker.recorded.by_uid):
        made.state.touch(uid)
        made.tracker.touch(uid)
    return made


def of_nodes(plan: ClusterPlan) -> dict[str, object]:
    return {
        "nodes": {desired.uid: desired for desired in plan.nodes},
        "rules": {device_rule.name: device_rule for device_rule in plan.rules},
        "rules_gone": set(plan.rules_gone),
        "released": {(uid, mark) for uid, mark in plan.released},
    }


def decisions(planner: Planner) -> dict[object, MarkDecision]:
    return {
        decision.request.key: decision
        for of_node in planner.tracker.decisions.values()
        for decision in of_node
    }


def decisions_at_start(planner: Planner) -> dict[object, MarkDecision]:
    """Return the decisions of a planner that has just started: it does not know since when a write is pending."""
    return {
        key: replace(decision, state=IncidentState.PENDING, reason="", write=WriteState.PENDING)
        if decision.restraint == "write"
        else decision
        for key, decision in decisions(planner).items()
    }


def incidents(planner: Planner) -> dict[str, Incident]:
    return {incident.name: incident for incident in planner.all_incidents()}


# Budgets that let many nodes be marked, so that a plan has something to keep.
wide = st.one_of(policies, st.builds(lambda policy: replace(policy, budget=WIDE), policies))


class Incremental(FleetHistory):
    """Random histories; after any step, the plan is compared with both plans from scratch."""

    from_inputs = True

    @initialize(policy=wide, devices=st.sets(numbers, max_size=12), unhealthy=st.sets(numbers, max_size=8))
    def begin(self, policy: Policy, devices: set[int], unhealthy: set[int]) -> None:
        """Some nodes are marked and settled at the start: later changes have to reach them."""
        super().begin(policy, devices)
        for number in unhealthy:
            self.fleet.report(number, finding(CHECKS[number % len(CHECKS)]))
        self.settle(0.0)

    @rule(number=numbers, under_maintenance=st.booleans())
    def maintenance(self, number: int, under_maintenance: bool) -> None:
        annotations = dict(self.fleet.nodes[f"uid-{number}"].annotations)
        annotations.pop(MAINTENANCE_ANNOTATION, None)
        more = {MAINTENANCE_ANNOTATION: "rack work"} if under_maintenance else {}
        self.fleet.change(number, annotations={**annotations, **more})

    @precondition(lambda self: not self.flying)
    @rule(number=numbers)
    def relabel(self, number: int) -> None:
        labels = dict(self.fleet.nodes[f"uid-{number}"].labels)
        self.fleet.change(number, labels={**labels, "rack": "r0" if labels["rack"] != "r0" else "r2"})

    @rule(label=st.sampled_from(["", "rack", "pool"]))
    def declare_topology(self, label: str) -> None:
        """The domains of all nodes change at once."""
        self.fleet.declare(*([TopologyLabels("fabric", (label,))] if label else []))
        self.compare()

    @precondition(lambda self: not self.flying)
    @rule(number=numbers)
    def replace_node(self, number: int) -> None:
        """A Node is deleted and created again: its marks and its agent are gone with it."""
        uid = f"uid-{number}"
        self.flying.pop(uid, None)
        self.fleet.planner.remove_node(uid)
        for name in [name for name, device_rule in self.fleet.rules.items() if device_rule.uid == uid]:
            self.fleet.rules.pop(name)
            self.fleet.planner.forget_rule(name)
            self.flying.pop(name, None)
        self.fleet.add(number)

    @rule(number=numbers)
    def remove_taints(self, number: int) -> None:
        self.fleet.change(number, taints=())

    @rule(paused=st.sampled_from(["", "change freeze"]))
    def pause(self, paused: str) -> None:
        self.fleet.planner.paused = paused

    @rule(quiet=st.sets(numbers, max_size=6), seconds=st.sampled_from([1.0, 31.0, 299.0]))
    def stale(self, quiet: set[int], seconds: float) -> None:
        """Time passes, and some agents send no heartbeat."""
        self.fleet.after(seconds, quiet={f"uid-{number}" for number in quiet})

    @rule(seconds=st.sampled_from([0.0, 1.0, 400.0]))
    def settle(self, seconds: float) -> None:
        """Plans are carried out until the marked nodes are settled, and time passes."""
        for _ in range(3):
            self.issue()
            self.land(seed=0, lost=0.0)
        self.fleet.after(seconds)

    @rule(index=numbers, findings=findings, passing=st.booleans())
    def change_marked(self, index: int, findings: list[ReportedFinding], passing: bool) -> None:
        """A marked node reports something else."""
        if marked := self.fleet.marked():
            number = marked[index % len(marked)]
            self.fleet.report(number, *(() if passing else findings), proven=ALL_PROVEN if passing else ())
            self.compare()

    @rule(index=numbers, text=st.sampled_from(["", "mine"]))
    def hold_marked(self, index: int, text: str) -> None:
        if marked := self.fleet.marked():
            number = marked[index % len(marked)]
            annotations = dict(self.fleet.nodes[f"uid-{number}"].annotations)
            annotations.pop(HOLD_ANNOTATION, None)
            self.fleet.change(
                number, annotations={**annotations, HOLD_ANNOTATION: text} if text else annotations
            )
            self.compare()

    @rule()
    def compare(self) -> None:
        self.fleet.planner.tick(self.fleet.now)
        scratch = [without_caches(self.fleet.planner)]
        if self.from_inputs:
            scratch.append(from_inputs(self.fleet))
        plan = self.fleet.plan()
        for planner in scratch:
            other = planner.plan(self.fleet.now)
            assert of_nodes(other) == of_nodes(plan)
            assert decisions_at_start(planner) == decisions_at_start(self.fleet.planner)
        assert decisions(scratch[0]) == decisions(self.fleet.planner)
        assert incidents(scratch[0]) == incidents(self.fleet.planner)

    def teardown(self) -> None:
        if hasattr(self, "fleet"):
            self.compare()


ports = st.builds(
    ReportedFinding,
    check=st.sampled_from(["port-down", "port-errors"]),
    target=st.just(PORT),
    health=st.sampled_from([Health.FATAL, Health.SUSPECT]),
    action=st.just(Action.REPLACE_COMPONENT),
    age=st.sampled_from([0.0, 5.0, 400.0]),
    family=st.just("infiniband"),
    evidence=st.just((ReportedEvidence("infiniband", "port.up False"),)),
    topologies=st.just(("fabric",)),
)
diagnosed = st.builds(
    lambda policy, enforced, topologies: replace(
        policy,
        topologies=topologies,
        grace=GracePeriods(0.0, 0.0, 60.0),
        budget=replace(policy.budget, first=1.0, degraded=0.5),
        diagnosis=diagnosis_policy(
            enforce=enforced, grace_period=5.0, recovery=RecoveryPolicy(initial=300.0)
        ),
    ),
    wide,
    st.sampled_from([(), ("fabric",), ("fabric",)]),
    # Without a topology in the policy, `declare_topology` sets it and takes it away.
    st.sampled_from([(TopologyLabels("fabric", ("rack",)),), ()]),
)


class Diagnosed(Incremental):
    """The same with failure domains that are degraded and checks that are suppressed."""

    # A new diagnosis does not know the times of earlier votes.
    from_inputs = False

    @initialize(
        policy=diagnosed, devices=st.sets(numbers, max_size=4), unhealthy=st.sets(numbers, max_size=4)
    )
    def begin(self, policy: Policy, devices: set[int], unhealthy: set[int]) -> None:
        super().begin(policy, devices, unhealthy)

    @rule(rack=st.integers(0, SIZE // 8 - 1), members=st.integers(3, 8), port=ports, wait=st.booleans())
    def degrade(self, rack: int, members: int, port: ReportedFinding, wait: bool) -> None:
        for number in range(rack * 8, rack * 8 + members):
            self.fleet.report(number, port)
        if wait:
            self.fleet.after(5.0)
            self.fleet.after(10.0)

    @rule(nodes=st.sets(numbers, min_size=5, max_size=12), port=ports)
    def false_alarm(self, nodes: set[int], port: ReportedFinding) -> None:
        for number in nodes:
            self.fleet.report(number, port)

    @rule(nodes=st.sets(numbers, min_size=1), driver=st.sampled_from(["580.1", "580.2"]))
    def roll_out(self, nodes: set[int], driver: str) -> None:
        for number in nodes:
            self.fleet.report(number, inventory=Inventory(driver=driver))

    @rule(rack=st.integers(0, SIZE // 8 - 1))
    def repair(self, rack: int) -> None:
        passing = (in_order(), in_order(("port-down", "port-errors"), (PORT,)))
        for number in range(rack * 8, rack * 8 + 8):
            self.fleet.report(number, proven=passing)


_SETTINGS = settings(
    max_examples=50, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
Incremental.TestCase.settings = _SETTINGS
Diagnosed.TestCase.settings = _SETTINGS
TestIncremental = Incremental.TestCase
TestDiagnosed = Diagnosed.TestCase


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(numbers, findings), max_size=30), policies, st.randoms(use_true_random=False))
def test_the_order_of_arrival_does_not_matter(
    reports: list[tuple[int, list[Any]]], policy: Policy, order: random.Random
) -> None:
    latest = dict(reports)
    shuffled = list(latest.items())
    order.shuffle(shuffled)
    plans = []
    for order_of_arrival in (list(latest.items()), shuffled):
        fleet = Fleet(SIZE, policy)
        for number, found in order_of_arrival:
            fleet.report(number, *found)
        plan = fleet.plan()
        plans.append((set(plan.nodes), {(device_rule.name, device_rule.state) for device_rule in plan.rules}))
    assert plans[0] == plans[1]
