"""Random histories of a fleet: faults, operators, time, lost writes and restarts, as steps of a state machine."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from msgspec.structs import replace

from nodeguard.executors.kube.desired import DesiredNode
from nodeguard.model.diagnosis import SuppressionPolicy
from nodeguard.model.finding import Health
from nodeguard.model.mark import HOLD_ANNOTATION
from nodeguard.model.node import Node
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
)
from tests.fleet.scene import CHECKS, Fleet, finding, foreign, in_order
from tests.policies import diagnosis_policy

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


class FleetHistory(RuleBasedStateMachine):
    """Any sequence of faults, operator actions, time, lost writes and restarts."""

    @initialize(policy=policies, devices=st.sets(numbers, max_size=12))
    def begin(self, policy: Policy, devices: set[int]) -> None:
        self.fleet = Fleet(SIZE, policy)
        for number in devices:
            self.fleet.publish(number)
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
        self.fleet.change(number, unschedulable=True)

    @precondition(lambda self: not self.flying)
    @rule(number=numbers)
    def uncordon(self, number: int) -> None:
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
        assert self.fleet.issue() == replace(plan, incidents=(), events=(), transient_incidents=())
        self.flying.update({node.uid: node for node in plan.nodes})
        self.based_on.update({node.uid: self.fleet.nodes[node.uid] for node in plan.nodes})
        self.flying.update({device_rule.name: device_rule for device_rule in plan.rules})
        self.flying.update({name: name for name in plan.rules_gone})

    @rule(seed=st.integers(0, 1000), lost=st.sampled_from([0.0, 0.0, 0.3, 1.0]))
    def land(self, seed: int, lost: float) -> None:
        """Land pending writes in any order, except lost ones.

        As the API server does with a resourceVersion, a write of a Node that has changed since is refused.
        """
        pending = list(self.flying.values())
        random.Random(seed).shuffle(pending)
        stale = [write for write in pending if self.is_stale(write)]
        writes = [write for write in pending if not self.is_stale(write)]
        done = round(len(writes) * (1.0 - lost))
        for write in writes[:done]:
            self.write(write)
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
