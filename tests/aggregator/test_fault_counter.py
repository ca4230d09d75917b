"""Counts of faults and GPU-seconds, with a service on the standalone backend."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from nodeguard.aggregator import fault_counter
from nodeguard.aggregator.fault_counter import FaultCounter, FaultLabels
from nodeguard.aggregator.fault_metrics import fault_families
from nodeguard.fleet.plan import Plan
from nodeguard.model.incident import FalseAlarm, Incident, IncidentState, OperatorDecision
from nodeguard.model.policy import MarkWrites
from nodeguard.pipeline.new_series import ZERO_SECONDS, CounterSeries
from nodeguard.wire.report import Inventory, ReportedComponent
from tests.aggregator.test_report_handler import report
from tests.aggregator.test_service import CALLER, Scene
from tests.fleet.scene import AT_ONCE, Fleet, finding
from tests.fleet.test_injection import ALLOWED, inject

GPUS = Inventory(
    components={f"gpu/0000:{number}b:00": ReportedComponent(f"GPU-{number}") for number in range(3, 7)}
)


class CountingScene(Scene):
    """A service of which the faults are counted. began: new labels. repairs: labels and seconds of each."""

    def __init__(self) -> None:
        super().__init__()
        self.began = list[FaultLabels]()
        self.repairs = list[tuple[FaultLabels, float]]()
        self.counter = FaultCounter(
            on_new_labels=self.began.append,
            on_repaired=lambda labels, seconds: self.repairs.append((labels, seconds)),
        )
        self.service.plan_listeners.append(
            lambda plan, now: self.counter.plan_made(
                self.planner, plan, self.backend.decisions, now, acts=self.service.is_active
            )
        )
        self.sequence = 0

    async def report(self, *, fatal: bool, seconds: float = 2.0) -> None:
        """Handle a report of the node, and plan twice: the second plan observes the first."""
        self.sequence += 1
        self.handler(CALLER, replace(report(self.sequence, fatal=fatal), inventory=GPUS))
        await self.turn(seconds)
        await self.turn(2.0)

    async def pass_time(self, seconds: float) -> None:
        for _ in range(int(seconds / 5.0)):
            await self.turn(5.0)

    def values(self, name: str) -> dict[tuple[str, ...], float]:
        """The values of a metric by its labels."""
        return {
            tuple(sample.labels.values()): sample.value
            for family in fault_families(self.counter, CounterSeries(), self.now)
            for sample in family.samples
            if sample.name == f"nodeguard_aggregator_{name}_total"
        }


@pytest.fixture
def scene() -> CountingScene:
    return CountingScene()


async def test_a_fault_counts_at_its_begin_and_its_repair_at_its_end(scene: CountingScene) -> None:
    await scene.report(fatal=False)
    await scene.report(fatal=True)
    began = scene.now.wall
    [labels] = scene.counter.faults
    assert (labels.check, labels.domain, labels.part) == ("gpu-lost", "", "gpu")
    assert scene.values("faults") == {tuple(labels): 0.0}  # a new series
    assert scene.began == [labels]
    await scene.pass_time(ZERO_SECONDS)
    assert scene.values("faults") == {tuple(labels): 1.0}
    assert scene.repairs == []
    await scene.report(fatal=False)
    await scene.pass_time(scene.planner.policy.soak.first + 60.0)
    [(repaired, seconds)] = scene.repairs
    assert repaired == labels
    assert 60.0 < seconds <= scene.now.wall - began + 60.0
    await scene.report(fatal=True)
    assert scene.counter.faults[labels] == 2
    assert scene.began == [labels]


async def test_gpu_seconds_are_those_of_the_mark(scene: CountingScene) -> None:
    await scene.report(fatal=False)
    [uid] = scene.planner.state.nodes
    gpus = scene.planner.state.nodes[uid].gpus
    assert gpus == 4
    for _ in range(4):
        await scene.report(fatal=True, seconds=3.0)
    before, nodes = dict(scene.counter.gpu_seconds_out), scene.counter.node_seconds
    for _ in range(20):
        await scene.report(fatal=True, seconds=3.0)
    [(key, seconds)] = scene.counter.gpu_seconds_out.items()
    assert (key[0].check, key[0].part, key[1]) == ("gpu-lost", "gpu", False)
    assert seconds - before[key] == pytest.approx(100.0 * gpus)
    assert scene.counter.node_seconds - nodes == pytest.approx(100.0)
    [share] = [label for label in scene.values("gpu_out_seconds") if label[-1] == "all"]
    assert share[:3] == ("gpu-lost", "", "gpu")


async def test_a_stale_agent_is_not_observed(scene: CountingScene) -> None:
    await scene.report(fatal=False)
    await scene.pass_time(100.0)
    nodes, gpus = scene.counter.node_seconds, scene.counter.gpu_seconds
    assert nodes > 0.0
    await scene.pass_time(100.0)
    assert scene.counter.node_seconds == nodes
    assert scene.counter.gpu_seconds - gpus == pytest.approx(400.0)


async def test_a_time_without_plans_is_a_gap(scene: CountingScene) -> None:
    await scene.report(fatal=False)
    await scene.pass_time(30.0)
    before = scene.counter.gpu_seconds
    assert before > 0.0
    await scene.turn(900.0)
    assert scene.counter.gpu_seconds == before


async def test_an_aggregator_that_takes_over_counts_no_earlier_fault(scene: CountingScene) -> None:
    await scene.report(fatal=True)
    await scene.pass_time(30.0)
    count = sum(scene.counter.faults.values())
    for scene.backend.is_leader in (False, True, True):
        await scene.turn(5.0)
    await scene.pass_time(30.0)
    assert sum(scene.counter.faults.values()) == count
    await scene.report(fatal=False)
    await scene.pass_time(scene.planner.policy.soak.first + 60.0)
    assert len(scene.repairs) == 1


async def test_a_statement_of_an_operator_counts_once(scene: CountingScene) -> None:
    await scene.report(fatal=True)
    await scene.pass_time(30.0)
    [name] = [name for incidents in scene.planner.tracker.recorded.by_uid.values() for name in incidents]
    await scene.backend.record_false_alarm(name, FalseAlarm("ann"))
    await scene.pass_time(60.0)
    assert scene.values("false_alarms") == {("gpu-lost",): 0.0}  # a new series
    await scene.pass_time(ZERO_SECONDS)
    assert scene.values("false_alarms") == {("gpu-lost",): 1.0}
    for scene.backend.is_leader in (False, True, True):
        await scene.turn(5.0)
    await scene.pass_time(60.0)
    assert scene.values("false_alarms") == {("gpu-lost",): 1.0}


def count(fleet: Fleet, counter: FaultCounter, plan: Plan) -> None:
    counter.plan_made(fleet.planner, plan, dict, fleet.now, acts=True)


def pass_delay(fleet: Fleet, counter: FaultCounter) -> None:
    """Let the delay of new series pass."""
    fleet.after(ZERO_SECONDS)
    count(fleet, counter, Plan())


def test_a_fault_that_ends_at_once_counts_after_its_series_is_exported() -> None:
    repairs = list[tuple[str, float]]()
    fleet = Fleet(2)
    counter = FaultCounter(on_repaired=lambda labels, seconds: repairs.append((labels.check, seconds)))
    count(fleet, counter, Plan())
    ended = replace(incident(1), state=IncidentState.RESOLVED, resolved_at=31.0)
    for _ in range(2):
        count(fleet, counter, Plan(transient_incidents=(ended,)))
        fleet.after(ZERO_SECONDS / 2.0)
    assert (list(counter.faults.values()), repairs) == ([0], [])
    count(fleet, counter, Plan())
    assert (list(counter.faults.values()), repairs) == ([2], [("check-1", 30.0)] * 2)


def test_an_aggregator_that_takes_over_exports_the_series_of_open_faults() -> None:
    fleet, began = Fleet(2), list[str]()
    fleet.report(1, finding())
    fleet.carry_out()
    counter = FaultCounter(on_new_labels=lambda labels: began.append(labels.check))
    count(fleet, counter, Plan())
    assert ([labels.check for labels in counter.faults], began) == (["gpu-lost"], ["gpu-lost"])
    pass_delay(fleet, counter)
    assert not any(counter.faults.values())


def test_injected_faults_and_parts_of_others_do_not_count() -> None:
    fleet, counter = Fleet(8, ALLOWED), FaultCounter()
    count(fleet, counter, fleet.plan())
    inject(fleet, "gpu-lost", number=1)
    fleet.report(2, finding())
    for _ in range(3):
        plan = fleet.carry_out()
        count(fleet, counter, plan)
    pass_delay(fleet, counter)
    assert [labels.check for labels in counter.faults.elements()] == ["gpu-lost"]


def incident(number: int, domain: str = "") -> Incident:
    node = "" if domain else f"n{number}"
    return Incident(
        f"i{number}", node, node, f"gpu/{number}", f"check-{number}", finding().health, IncidentState.OPEN,
        1.0, 1.0, domain=domain,
    )  # fmt: skip


def test_the_number_of_series_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fault_counter, "_MAX_COMBINATIONS", 3)
    monkeypatch.setattr(fault_counter, "_MAX_DOMAINS", 1)
    fleet, counter = Fleet(2), FaultCounter()
    count(fleet, counter, Plan())
    domains = tuple(incident(number, f"rack/r{number}") for number in range(3))
    count(fleet, counter, Plan(incidents=domains))
    assert [labels.domain for labels in counter.faults] == ["rack/r0", "other", "other"]
    count(fleet, counter, Plan(incidents=tuple(incident(number) for number in range(10, 20))))
    pass_delay(fleet, counter)
    assert counter.faults[FaultLabels("other", "other", "other", "other")] == 10
    assert len(counter.faults) == 4


def test_a_statement_counts_once_for_an_occurrence() -> None:
    fleet, counter = Fleet(8), FaultCounter()
    fleet.report(1, finding())
    fleet.carry_out()
    [name] = fleet.planner.tracker.recorded.by_uid["uid-1"]

    def read(statement: FalseAlarm | None = None) -> None:
        decisions = {} if statement is None else {name: OperatorDecision(name, false_alarm=statement)}
        counter.plan_made(fleet.planner, Plan(), lambda: decisions, fleet.now, acts=True)
        fleet.after(20.0)

    read(FalseAlarm("ann"))
    read(FalseAlarm("bob"))
    assert not counter.false_alarms  # decisions at the start
    read()
    read(FalseAlarm("eve", withdrawn=True))
    read(FalseAlarm("bob"))
    read(FalseAlarm("bob", reason="a sensor"))
    read(FalseAlarm("eve", withdrawn=True))
    read(FalseAlarm("bob"))
    assert counter.false_alarms == {"gpu-lost": 0}  # a new series
    pass_delay(fleet, counter)
    assert counter.false_alarms == {"gpu-lost": 1}


@pytest.mark.parametrize("keeps_cordon", [True, False])
def test_a_gpu_is_out_while_a_mark_keeps_work_away(*, keeps_cordon: bool) -> None:
    policy = replace(AT_ONCE, marks=MarkWrites(taint=False, cordon=True))
    fleet, counter = Fleet(2, policy), FaultCounter()
    fleet.report(1, finding())
    count(fleet, counter, fleet.carry_out())
    assert fleet.nodes["uid-1"].unschedulable
    if not keeps_cordon:
        fleet.change(1, unschedulable=False)
    gpu_seconds = list[float]()
    for _ in range(11):
        fleet.after(10.0)
        count(fleet, counter, fleet.carry_out())
        gpu_seconds.append(sum(counter.gpu_seconds_out.values()))
    assert gpu_seconds[-1] - gpu_seconds[0] == (800.0 if keeps_cordon else 0.0)
