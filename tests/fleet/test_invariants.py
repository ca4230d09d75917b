"""Property tests: invariants of a fleet under any sequence of events."""

from __future__ import annotations

import random
from math import inf
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from nodeguard.executors.kube.desired import DesiredNode
from nodeguard.fleet.state.node_marks import decode_record
from nodeguard.fleet.state.node_placement import WHOLE
from nodeguard.model.diagnosis import SuppressionPolicy
from nodeguard.model.finding import Health
from nodeguard.model.mark import HOLD_ANNOTATION, STATE_ANNOTATION, MarkRecord
from nodeguard.model.node import PREFIX, Node
from nodeguard.model.policy import (
    Budget,
    CheckLimit,
    GracePeriods,
    Hold,
    MarkWrites,
    Mode,
    ModeRule,
    Policy,
    SoakPeriod,
    TopologyLabels,
    check_patterns,
)
from tests.fleet.scene import CHECKS, Fleet, finding, foreign, in_order
from tests.policies import diagnosis_policy

pytestmark = pytest.mark.slow

SIZE = 24
SLOTS = ("gpu/0000:3b:00", "gpu/0000:3c:00", "node")
ALL_PROVEN = (in_order(targets=SLOTS),)

numbers = st.integers(0, SIZE - 1)
findings = st.lists(
    st.builds(
        finding,
        st.sampled_from(CHECKS),
        st.sampled_from(SLOTS),
        health=st.sampled_from([Health.FATAL, Health.FATAL, Health.SUSPECT, Health.WARNING]),
        age=st.sampled_from([1.0, 30.0, 400.0]),
        component=st.just(""),
    ),
    max_size=3,
    unique_by=lambda active: (active.check, active.target),
)
policies = st.builds(
    Policy,
    mode=st.just(Mode.ENFORCE),
    modes=st.sampled_from([(), (ModeRule(Mode.OBSERVE, checks=("gpu-hot",)),)]),
    budget=st.builds(
        Budget,
        fleet=st.sampled_from([0.05, 0.1, 0.3]),
        reserve=st.sampled_from([0.0, 0.2]),
        pool=st.sampled_from([0.1, 0.5]),
        domain=st.sampled_from([0.13, 0.25, 0.5]),
        suspect=st.sampled_from([0.05, 0.2]),
        check=st.sampled_from([CheckLimit(2, 600.0, 4), CheckLimit(9, 600.0, 9)]),
    ),
    grace=st.just(GracePeriods(0.0, 0.0)),
    soak=st.sampled_from([SoakPeriod(0.0, 0.0, 3600.0), SoakPeriod(300.0, 1200.0, 3600.0)]),
    marks=st.sampled_from([MarkWrites(), MarkWrites(cordon=True), MarkWrites(condition=False)]),
    holds=st.sampled_from([(), (), (Hold(checks=("gpu-ecc",)),)]),
    topologies=st.just((TopologyLabels("rack", ("rack",)),)),
    # test_incremental_plan has the diagnosis.
    diagnosis=st.just(diagnosis_policy(suppression=SuppressionPolicy(min_nodes=10_000))),
)


def record(fleet: Fleet, uid: str) -> MarkRecord:
    return decode_record(fleet.nodes[uid].annotations.get(STATE_ANNOTATION, "")) or MarkRecord()


def used(fleet: Fleet) -> dict[str, float]:
    """Return the usage of every budget, counted from the records on Nodes and devices."""
    found: dict[str, float] = {}

    def add(key: str, what: float) -> None:
        found[key] = found.get(key, 0.0) + what

    now = fleet.wall
    for uid, node in fleet.nodes.items():
        own = record(fleet, uid)
        devices = [
            decode_record(device_rule.state) or MarkRecord()
            for device_rule in fleet.rules.values()
            if device_rule.uid == uid
        ]
        charges = [device.charge for device in (own, *devices) if device.charge]
        parts = WHOLE if own.charge else min(WHOLE, 105 * len(devices))
        is_free = node.unschedulable and not own.cordoned
        apart = " under a cordon" if is_free else ""
        if not is_free:
            marks = {cause.mark for cause in own.causes}
            quarantined = WHOLE if "quarantine" in marks else min(WHOLE, 105 * len(devices))
            for key in ("fleet", f"rack {node.labels['rack']}"):
                add(key, parts)
                add(f"{key} quarantine", quarantined)
                add(f"{key} suspect", WHOLE if "suspect" in marks else 0)
            if "suspect" in marks:
                add("suspect", WHOLE)
        for charge in charges:
            add(f"standing {charge.check}{apart}", 1)
            if now - charge.at < 600.0:
                add(f"new {charge.check}{apart}", 1)
        # A node counts once, whatever its record lists.
        charged = {charge.check for charge in charges}
        recent = {past.check for past in own.past_charges if now - past.at < 600.0}
        for check in recent - charged:
            add(f"new {check}{apart}", 1)
    return found


def most(fleet: Fleet, key: str) -> float:
    budget, total = fleet.policy.budget, len(fleet.nodes)
    if key.startswith("standing"):
        return budget.check.active
    if key.startswith("new"):
        return budget.check.new
    if key == "suspect":
        return max(1, int(budget.suspect * total + 1e-9)) * WHOLE
    group = key.removesuffix(" suspect").removesuffix(" quarantine")
    if group != "fleet" and all("rack" not in topology.labels for topology in fleet.policy.topologies):
        return inf  # Without a topology, racks have no budget.
    rack = sum(1 for node in fleet.nodes.values() if f"rack {node.labels['rack']}" == group)
    share = budget.fleet * total if group == "fleet" else budget.domain * rack
    nodes = max(1, int(share + 1e-9))
    # A budget of one node counts suspect and quarantined nodes separately, each with its own limit.
    return inf if nodes == 1 and key == group else nodes * WHOLE


class Life(RuleBasedStateMachine):
    """Any sequence of faults, operator actions, time, lost writes and restarts."""

    @initialize(policy=policies, devices=st.sets(numbers, max_size=12))
    def begin(self, policy: Policy, devices: set[int]) -> None:
        self.fleet = Fleet(SIZE, policy)
        for number in devices:
            self.fleet.publish(number)
        self.cordoned: set[str] = set()
        self.flying: dict[str, Any] = {}
        self.based_on: dict[str, Node] = {}

    @rule(number=numbers, found=findings)
    def fault(self, number: int, found: list[Any]) -> None:
        self.fleet.report(number, *found)

    @rule(number=numbers, proven=st.booleans())
    def recover(self, number: int, proven: bool) -> None:
        self.fleet.report(number, proven=ALL_PROVEN if proven else ())

    @rule(first=numbers, found=findings)
    def storm(self, first: int, found: list[Any]) -> None:
        for number in range(first, SIZE):
            self.fleet.report(number, *found)

    @rule(number=numbers)
    def cordon(self, number: int) -> None:
        uid = f"uid-{number}"
        if not self.fleet.nodes[uid].unschedulable:
            self.cordoned.add(uid)
            self.fleet.change(number, unschedulable=True)

    @precondition(lambda self: not self.flying)
    @rule(number=numbers)
    def uncordon(self, number: int) -> None:
        self.cordoned.discard(f"uid-{number}")
        self.fleet.change(number, unschedulable=False)

    @rule(number=numbers)
    def taint(self, number: int) -> None:
        node = self.fleet.nodes[f"uid-{number}"]
        if foreign() not in node.taints:
            self.fleet.change(number, taints=(foreign(), *node.taints))

    @rule(number=numbers, on_hold=st.booleans())
    def hold(self, number: int, on_hold: bool) -> None:
        uid = f"uid-{number}"
        node = {
            key: text for key, text in self.fleet.nodes[uid].annotations.items() if key != HOLD_ANNOTATION
        }
        self.fleet.change(number, annotations={**node, HOLD_ANNOTATION: "x"} if on_hold else node)

    @rule(seconds=st.sampled_from([1.0, 299.0, 601.0, 4000.0]))
    def time(self, seconds: float) -> None:
        self.fleet.after(seconds)

    @precondition(lambda self: not self.flying)
    @rule(policy=policies)
    def decide(self, policy: Policy) -> None:
        self.fleet.policy = policy
        self.fleet.planner.set_policy(policy)

    @rule()
    def restart(self) -> None:
        """Start a new aggregator: pending writes of the old one end with its lease."""
        self.flying.clear()
        self.fleet.restart()

    @rule()
    def issue(self) -> None:
        """Issue a plan; it replaces pending writes of the same Node or device."""
        plan = self.fleet.plan()
        self.every_release_has_a_reason(plan)
        assert self.fleet.issue() == replace(plan, incidents=(), events=(), transient_incidents=())
        assert not any(HOLD_ANNOTATION in self.fleet.nodes[node.uid].annotations for node in plan.nodes)
        self.flying.update({node.uid: node for node in plan.nodes})
        self.based_on.update({node.uid: self.fleet.nodes[node.uid] for node in plan.nodes})
        self.flying.update({device_rule.name: device_rule for device_rule in plan.rules})
        self.flying.update({name: name for name in plan.rules_gone})

    @rule(seed=st.integers(0, 1000), lost=st.sampled_from([0.0, 0.0, 0.3, 1.0]))
    def land(self, seed: int, lost: float) -> None:
        """Land pending writes in any order, except lost ones; after each, no budget is exceeded.

        As the API server does with a resourceVersion, a write of a Node that has changed since is refused.
        """
        pending = list(self.flying.values())
        random.Random(seed).shuffle(pending)
        stale = [write for write in pending if self.is_stale(write)]
        writes = [write for write in pending if not self.is_stale(write)]
        done = round(len(writes) * (1.0 - lost))
        for write in writes[:done]:
            before, nodes = used(self.fleet), dict(self.fleet.nodes)
            self.write(write)
            for key, parts in used(self.fleet).items():
                assert parts <= max(most(self.fleet, key), before.get(key, 0.0)), (key, parts)
            for uid, node in self.fleet.nodes.items():
                theirs = [taint for taint in nodes[uid].taints if not taint.key.startswith(PREFIX)]
                assert [taint for taint in node.taints if not taint.key.startswith(PREFIX)] == theirs
        for write in (*writes[done:], *stale):
            if not isinstance(write, str):
                self.fleet.planner.record_failed(write.uid)
        self.flying.clear()

    def is_stale(self, write: Any) -> bool:
        return isinstance(write, DesiredNode) and self.fleet.nodes[write.uid] != self.based_on[write.uid]

    def write(self, write: Any) -> None:
        if isinstance(write, DesiredNode):
            self.fleet.planner.record_written(write.uid, write.record)
            self.fleet.mark(write)
        elif isinstance(write, str):
            self.fleet.rules.pop(write, None)
            self.fleet.planner.forget_rule(write)
        else:
            self.fleet.rules[write.name] = write
            self.fleet.planner.observe_rule(write)

    def every_release_has_a_reason(self, plan: Any) -> None:
        for uid, mark in plan.released:
            report, cause = self.fleet.reports[uid], mark.cause
            assert HOLD_ANNOTATION not in self.fleet.nodes[uid].annotations
            if mark.reason == "retracted":
                assert any(cause.check in check_patterns(hold) for hold in self.fleet.policy.holds)
            elif mark.reason == "proven":
                places = {
                    slot for group in report.passing for slot in group.targets if cause.check in group.checks
                }
                assert set(cause.targets or (cause.target,)) <= places
                assert all(active.check != cause.check for active in report.findings)
            else:
                assert mark.reason == "removed"
                assert all(taint.key != cause.mark.key for taint in self.fleet.nodes[uid].taints)

    @invariant()
    def operators_cordons_stay(self) -> None:
        if hasattr(self, "fleet"):
            assert all(self.fleet.nodes[uid].unschedulable for uid in self.cordoned)

    def teardown(self) -> None:
        if hasattr(self, "fleet"):
            self.restart()
            self.fleet.carry_out()
            marked, rules = self.fleet.marked(), dict(self.fleet.rules)
            self.fleet.restart()
            self.fleet.carry_out()
            assert (self.fleet.marked(), self.fleet.rules) == (marked, rules)


Life.TestCase.settings = settings(
    max_examples=400, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
TestLife = Life.TestCase


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
