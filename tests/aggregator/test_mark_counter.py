"""Counts of marks, with a service on the standalone backend."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from nodeguard.aggregator import mark_metrics
from nodeguard.aggregator.identity.caller import Caller
from nodeguard.aggregator.mark_counter import MarkCounter
from nodeguard.aggregator.mark_metrics import mark_families
from nodeguard.model.finding import Health
from nodeguard.model.policy import InjectionPolicy
from nodeguard.pipeline.new_series import ZERO_SECONDS, CounterSeries
from nodeguard.wire.report import ReportedInjection
from tests.aggregator.test_report_handler import report
from tests.aggregator.test_service import CALLER, Scene
from tests.fleet.scene import Fleet, finding
from tests.fleet.test_injection import ALLOWED, inject


class CountingScene(Scene):
    """A service of which the marks are counted. delays: of releases, in seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.delays = list[float]()
        self.counter = MarkCounter(on_released=self.delays.append)
        self.service.plan_listeners.append(
            lambda plan, now: self.counter.plan_made(self.planner, plan, now, acts=self.service.is_active)
        )
        self.sequence = 0
        self.series = CounterSeries()

    async def report(self, *, fatal: bool, seconds: float = 2.0) -> None:
        """Handle a report of the node, and plan twice: the second plan observes the first."""
        self.sequence += 1
        self.handler(CALLER, report(self.sequence, fatal=fatal))
        await self.turn(seconds)
        await self.turn(2.0)

    async def lose_and_regain_the_lease(self) -> None:
        for self.backend.is_leader in (False, True, True):
            await self.turn(5.0)

    def values(self, name: str) -> dict[tuple[str, ...], float]:
        """The values of a metric by its labels."""
        return {
            tuple(sample.labels.values()): sample.value
            for family in mark_families(self.planner, self.counter, self.series, self.now)
            for sample in family.samples
            if sample.name == f"nodeguard_aggregator_{name}"
        }


@pytest.fixture
def scene() -> CountingScene:
    return CountingScene()


async def test_a_mark_is_counted_once_when_it_is_set_and_once_when_it_is_released(
    scene: CountingScene,
) -> None:
    await scene.report(fatal=False)
    await scene.report(fatal=True)
    for _ in range(3):
        await scene.turn(5.0)
    assert scene.counter.set_marks == {("quarantine", "gpu-lost", False): 1}
    assert scene.values("node_mark") == {("node-1", "quarantine", "gpu-bus"): 1}
    assert scene.values("schedulable_fatal_node") == {}
    await scene.report(fatal=False)
    soak = scene.planner.policy.soak.first
    await scene.turn(soak)
    await scene.turn(2.0)
    assert scene.counter.released_marks == {("quarantine", "proven", False): 1}
    assert [soak <= delay <= soak + 10.0 for delay in scene.delays] == [True]
    assert scene.values("node_mark") == {}


def test_a_mark_that_only_injected_faults_cause_has_a_label_and_takes_no_series_of_a_real_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mark_metrics, "_MAX_NODES", 2)
    fleet = Fleet(4, ALLOWED)
    inject(fleet, "gpu-lost", number=0)
    fleet.carry_out()
    fleet.report(2, finding("gpu-ecc", family="gpu-memory"), injected=(finding("gpu-lost", age=90.0),))
    fleet.report(3, finding("port-down", health=Health.SUSPECT))
    fleet.carry_out()

    def marks() -> list[list[str]]:
        families = mark_metrics.mark_families(fleet.planner, MarkCounter(), CounterSeries(), fleet.now)
        [family] = (family for family in families if family.name.endswith("_node_mark"))
        return [list(sample.labels.values()) for sample in family.samples]

    assert marks() == [["node-2", "quarantine", "gpu-memory"], ["node-3", "suspect", "gpu-bus"]]
    monkeypatch.setattr(mark_metrics, "_MAX_NODES", 3)
    assert marks()[2] == ["node-0", "quarantine", "gpu-bus", "true"]


async def test_marks_from_before_this_aggregator_is_active_are_not_counted(scene: CountingScene) -> None:
    await scene.report(fatal=False)
    await scene.report(fatal=True)
    await scene.lose_and_regain_the_lease()
    assert scene.counter.set_marks == {("quarantine", "gpu-lost", False): 1}


async def test_a_request_is_counted_as_withheld_once_for_each_reason(scene: CountingScene) -> None:
    await scene.report(fatal=False)
    scene.planner.paused = "a driver rollout"
    await scene.report(fatal=True)
    await scene.turn(5.0)
    assert scene.counter.withheld_requests == {("quarantine", "pause"): 1}
    assert scene.values("schedulable_fatal_node") == {("node-1", "pause"): 1}
    assert scene.values("schedulable_fatal_nodes") == {("pause",): 1}


async def test_a_node_that_is_not_ready_gets_no_new_work(scene: CountingScene) -> None:
    """It may be powered off for a repair: Kubernetes keeps work away, and an alert would page for days."""
    await scene.report(fatal=False)
    scene.planner.paused = "a driver rollout"
    await scene.report(fatal=True)
    scene.planner.update_node(replace(scene.planner.state.nodes["node-1"], ready=False))
    await scene.turn(2.0)
    assert scene.values("schedulable_fatal_node") == {}


async def test_requests_from_before_this_aggregator_is_active_are_not_counted(scene: CountingScene) -> None:
    await scene.report(fatal=False)
    scene.planner.paused = "a driver rollout"
    await scene.report(fatal=True)
    await scene.lose_and_regain_the_lease()
    assert scene.counter.withheld_requests == {("quarantine", "pause"): 1}


async def test_marks_that_an_operator_removes_are_unmarked(scene: CountingScene) -> None:
    await scene.report(fatal=False)
    await scene.report(fatal=True)
    await scene.backend.unmark("an operator")
    await scene.turn(2.0)
    await scene.turn(2.0)
    assert scene.counter.released_marks == {("quarantine", "unmarked", False): 1}


async def test_the_mark_of_a_deleted_node_is_released(scene: CountingScene) -> None:
    await scene.report(fatal=False)
    await scene.report(fatal=True)
    other = Caller("node-2", "node-2")
    scene.handler(other, replace(report(), node="node-2"))
    scene.inputs.node_deleted("node-1")
    await scene.turn(2.0)
    assert scene.counter.released_marks == {("quarantine", "node-deleted", False): 1}


async def test_the_mark_of_an_injected_fault_is_counted_apart(scene: CountingScene) -> None:
    scene.planner.set_policy(replace(scene.planner.policy, injection=InjectionPolicy(allowed=True)))
    scene.handler(CALLER, report(1))
    await scene.turn(2.0)
    scene.handler(CALLER, replace(report(2), injections=(ReportedInjection(finding(), "uid 0", 60.0),)))
    await scene.turn(2.0)
    await scene.turn(2.0)
    assert scene.counter.set_marks == {("quarantine", "gpu-lost", True): 1}
    assert scene.values("schedulable_fatal_nodes") == {}
    scene.handler(CALLER, report(3))
    await scene.turn(2.0)
    await scene.turn(2.0)
    assert scene.counter.released_marks == {("quarantine", "proven", True): 1}
    assert scene.delays == []
    assert scene.values("marks_set_total") == {("quarantine", "gpu-lost", "true"): 0.0}
    scene.mono += ZERO_SECONDS
    assert scene.values("marks_set_total") == {("quarantine", "gpu-lost", "true"): 1.0}
    assert scene.values("marks_released_total") == {("quarantine", "proven", "true"): 1.0}
