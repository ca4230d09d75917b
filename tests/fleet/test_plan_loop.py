from __future__ import annotations

from collections.abc import Callable
from math import inf

import pytest
from msgspec.structs import replace

from nodeguard.executors.kube.desired import DeviceRule
from nodeguard.fleet.plan import Plan
from nodeguard.fleet.plan_loop import MAX_INTERVAL, PlanLoop
from nodeguard.model.mark import MarkRecord
from nodeguard.model.policy import SoakPeriod
from tests.fleet.cluster_planner import ClusterPlan
from tests.fleet.scene import AT_ONCE, Fleet, finding, foreign

RULE = DeviceRule("nodeguard-1", "node-1", "uid-1", "gpu.nvidia.com", "node-1", "gpu-0", foreign())


def test_a_step_issues_its_plan_once() -> None:
    made = Fleet(40)
    made.report(0, finding())
    loop = PlanLoop(made.planner)
    first, second = loop.step(made.now), loop.step(made.now)
    assert [decision.node for decision in first.plan.decisions] == ["uid-0"]
    assert second.plan.decisions == ()
    assert made.planner.state.marks.is_pending("uid-0")


def test_a_plan_that_is_not_issued_stays_the_same() -> None:
    made = Fleet(40)
    made.report(0, finding())
    loop = PlanLoop(made.planner)
    first, second = loop.step(made.now, is_issued=False), loop.step(made.now, is_issued=False)
    assert [decision.node for decision in first.plan.decisions] == ["uid-0"]
    assert first.plan.decisions == second.plan.decisions
    assert not made.planner.state.marks.is_pending("uid-0")


def test_the_rest_of_a_limited_plan_is_due_at_once() -> None:
    made = Fleet(400)
    for number in range(5):
        made.report(number, finding())
    loop = PlanLoop(made.planner)
    marked = []
    for deferred in (3, 1, 0):
        step = loop.step(made.now, 2)
        assert step.plan.deferred == deferred
        assert (step.next_change < made.mono + 0.01) == (deferred > 0)
        marked += [decision.node for decision in step.plan.decisions]
    assert sorted(marked) == [f"uid-{number}" for number in range(5)]
    assert loop.step(made.now, 2).next_change == inf


def test_a_follower_does_not_wait_for_the_rest_of_its_plan() -> None:
    made = Fleet(400)
    for number in range(5):
        made.report(number, finding())
    step = PlanLoop(made.planner).step(made.now, 2, is_issued=False)
    assert (step.plan.deferred, step.next_change) == (3, inf)


def test_a_plan_at_the_due_time_sees_the_change() -> None:
    made = Fleet(40, replace(AT_ONCE, soak=SoakPeriod(600.1)))
    loop = PlanLoop(made.planner)
    made.report(0, finding())
    plan = loop.step(made.now).plan
    assert isinstance(plan, ClusterPlan)
    made.write(plan)
    made.report(0)
    loop.step(made.now)
    due = loop.step(made.now).next_change
    assert due == pytest.approx(made.mono + 600.1, abs=0.01)
    made.after(due - made.mono)
    assert len(loop.step(made.now).plan.released) == 1


def second(made: Fleet, loop: PlanLoop) -> bool:
    """Let a second pass, and plan if that is due. Returns whether it was."""
    made.after(1.0)
    is_due = loop.is_due(made.now)
    if is_due:
        plan = loop.step(made.now).plan
        assert isinstance(plan, ClusterPlan)
        made.write(plan)
    return is_due


def rest(made: Fleet, loop: PlanLoop) -> None:
    """Let time pass until no plan is due."""
    assert any(not second(made, loop) for _ in range(10))


def test_a_fleet_at_rest_is_planned_only_as_often_as_the_limit_asks() -> None:
    made = Fleet(40)
    loop = PlanLoop(made.planner)
    rest(made, loop)
    due = [number for number in range(200) if second(made, loop)]
    assert 2 <= len(due) <= 200 / MAX_INTERVAL
    rest(made, unlimited := PlanLoop(made.planner, inf))
    assert not any(second(made, unlimited) for _ in range(200))


def test_a_mark_that_waits_for_its_finding_is_at_rest() -> None:
    made = Fleet(40)
    loop = PlanLoop(made.planner, inf)
    made.report(0, finding())
    rest(made, loop)
    assert made.marked() == [0]
    assert not any(second(made, loop) for _ in range(100))


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda made: made.report(0, finding()), id="report"),
        pytest.param(lambda made: made.change(0, unschedulable=True), id="node"),
        pytest.param(lambda made: made.planner.remove_node("uid-0"), id="deleted"),
        pytest.param(lambda made: made.planner.set_policy(replace(AT_ONCE, pause=True)), id="policy"),
        pytest.param(lambda made: setattr(made.planner, "paused", "by ann"), id="pause"),
        pytest.param(lambda made: made.planner.restore_incidents(()), id="incidents"),
        pytest.param(lambda made: made.planner.observe_rule(RULE), id="rule"),
        pytest.param(lambda made: made.planner.record_failed("uid-0"), id="late failure of a write"),
        pytest.param(lambda made: made.planner.record_written("uid-0", MarkRecord()), id="late success"),
        pytest.param(lambda made: made.after(3_600.0, quiet=("uid-1",)), id="stale"),
        pytest.param(lambda made: setattr(made, "wall", made.wall + 0.1), id="clock"),
    ],
)
def test_an_input_makes_a_plan_due(change: Callable[[Fleet], object]) -> None:
    made = Fleet(40)
    for number in range(40):
        made.report(number)
    loop = PlanLoop(made.planner, inf)
    rest(made, loop)
    change(made)
    assert loop.is_due(made.now)


def test_a_heartbeat_and_another_version_of_a_node_are_no_inputs() -> None:
    made = Fleet(40)
    made.report(0)
    loop = PlanLoop(made.planner, inf)
    rest(made, loop)
    made.planner.record_heartbeat("uid-0", made.now)
    made.change(0, version="another")
    assert not loop.is_due(made.now)
    assert made.planner.cluster.nodes["uid-0"].version == "another"


def test_a_replica_that_begins_to_issue_plans_at_once() -> None:
    made = Fleet(40)
    loop = PlanLoop(made.planner, inf)
    for _ in range(3):
        made.after(1.0)
        loop.step(made.now, is_issued=False)
    assert not loop.is_due(made.now, is_issued=False)
    assert loop.is_due(made.now, is_issued=True)


def test_a_plan_after_an_error_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Fleet(40)
    loop = PlanLoop(made.planner, inf)
    rest(made, loop)
    monkeypatch.setattr(made.planner, "plan", lambda *_: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        loop.step(made.now)
    assert loop.is_due(made.now)


def test_a_plan_with_work_for_later_turns_is_not_at_rest() -> None:
    made = Fleet(40)
    made.report(0, finding())
    loop = PlanLoop(made.planner, inf)
    assert loop.step(made.now).plan != Plan()
    for _ in range(10):  # the write is not observed
        made.after(1.0)
        assert loop.is_due(made.now)
        loop.step(made.now)
