from __future__ import annotations

from math import inf

import pytest
from msgspec.structs import replace

from nodeguard.fleet.plan_loop import PlanLoop
from nodeguard.model.policy import SoakPeriod
from tests.fleet.scene import AT_ONCE, Fleet, finding


def test_a_step_issues_its_plan_once() -> None:
    made = Fleet(40)
    made.report(0, finding())
    loop = PlanLoop(made.planner)
    first, second = loop.step(made.now), loop.step(made.now)
    assert [node.uid for node in first.plan.nodes] == ["uid-0"]
    assert second.plan.nodes == ()
    assert made.planner.state.is_pending("uid-0")


def test_a_plan_that_is_not_issued_stays_the_same() -> None:
    made = Fleet(40)
    made.report(0, finding())
    loop = PlanLoop(made.planner)
    first, second = loop.step(made.now, is_issued=False), loop.step(made.now, is_issued=False)
    assert [node.uid for node in first.plan.nodes] == ["uid-0"]
    assert first.plan.nodes == second.plan.nodes
    assert not made.planner.state.is_pending("uid-0")


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
        marked += [node.uid for node in step.plan.nodes]
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
    made.write(loop.step(made.now).plan)
    made.report(0)
    loop.step(made.now)
    due = loop.step(made.now).next_change
    assert due == pytest.approx(made.mono + 600.1, abs=0.01)
    made.after(due - made.mono)
    assert len(loop.step(made.now).plan.released) == 1
