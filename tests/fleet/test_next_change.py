from __future__ import annotations

from datetime import UTC, datetime
from math import inf

import pytest
from msgspec.structs import replace

from nodeguard.fleet.next_change import next_change
from nodeguard.model.finding import DataStatus
from nodeguard.model.policy import Budget, CheckLimit, GracePeriods, Mode, Silence, SoakPeriod
from tests.fleet.scene import AT_ONCE, Fleet, finding


def seconds(made: Fleet) -> float:
    return next_change(made.planner, made.now) - made.now.mono


def test_a_healthy_fleet_never_changes() -> None:
    made = Fleet(4)
    made.carry_out()
    assert seconds(made) == inf


def test_a_plan_changes_at_the_end_of_a_grace_period() -> None:
    made = Fleet(40, replace(AT_ONCE, grace=GracePeriods(quarantine=20.0, suspect=60.0, shared=0.0)))
    made.report(0, finding(age=0.0))
    made.carry_out()
    left = seconds(made)
    assert 0.0 < left <= 20.0
    made.after(left - 0.1)
    made.carry_out()
    assert made.marked() == []
    made.after(0.2)
    made.carry_out()
    assert made.marked() == [0]


def test_a_plan_changes_at_the_end_of_a_soak_period() -> None:
    made = Fleet(40, replace(AT_ONCE, soak=SoakPeriod(600.0)))
    made.report(0, finding())
    made.carry_out()
    made.report(0)
    made.carry_out()
    assert seconds(made) == pytest.approx(600.0)


def test_a_plan_changes_when_the_limit_of_a_check_ends() -> None:
    made = Fleet(400, replace(AT_ONCE, budget=Budget(check=CheckLimit(new=1, within=300.0))))
    for number in (0, 1):
        made.report(number, finding())
    made.carry_out()
    assert len(made.marked()) == 1
    assert 0.0 < seconds(made) <= 300.0


@pytest.mark.parametrize("jump", [700.0, -700.0, 86_400.0])
def test_a_jump_of_the_clock_leaves_the_end_of_a_limit(jump: float) -> None:
    made = Fleet(400, replace(AT_ONCE, budget=Budget(check=CheckLimit(new=1, within=300.0))))
    made.report(0, finding())
    made.carry_out()
    made.after(100.0)
    made.wall += jump
    made.report(1, finding())
    made.carry_out()
    assert made.marked() == [0]
    assert seconds(made) == pytest.approx(200.0, abs=1.0)


def test_a_plan_changes_when_a_silence_ends() -> None:
    silence = Silence(until=datetime.fromtimestamp(1_700_000_500, UTC))
    made = Fleet(4, replace(AT_ONCE, silences=(silence, Silence(checks=("port-*",)))))
    made.report(0, finding())
    made.carry_out()
    assert seconds(made) == pytest.approx(silence.end - made.wall)
    made.after(seconds(made))
    assert [incident.node for incident in made.carry_out().incidents] == ["node-0"]


def test_a_plan_changes_when_the_grace_period_of_a_stale_finding_ends() -> None:
    made = Fleet(40, replace(AT_ONCE, grace=GracePeriods(quarantine=20.0, suspect=60.0, shared=0.0)))
    made.report(0, finding(age=0.0, data_status=DataStatus.STALE))
    made.carry_out()
    assert made.planner.tracker.recorded.by_uid == {}
    made.after(seconds(made))
    made.carry_out()
    assert [*made.planner.tracker.recorded.by_uid] == ["uid-0"]


def test_a_plan_changes_when_a_past_charge_is_forgotten() -> None:
    made = Fleet(40, replace(AT_ONCE, soak=SoakPeriod(0.0, 0.0, 5_000.0)))
    made.report(0, finding())
    made.carry_out()
    made.report(0)
    made.carry_out()
    assert made.planner.state.marks.latest("uid-0").node.past_charges
    assert seconds(made) == pytest.approx(5_000.0)
    made.after(seconds(made))
    made.carry_out()
    assert not made.planner.state.marks.latest("uid-0").node.past_charges


def test_a_plan_changes_when_a_grant_of_the_dry_run_ends() -> None:
    made = Fleet(40, replace(AT_ONCE, mode=Mode.OBSERVE, soak=SoakPeriod(600.0)))
    made.report(0, finding())
    made.carry_out()
    made.report(0)
    made.carry_out()
    assert made.planner.admissions.dry_run
    assert seconds(made) == pytest.approx(600.0)
    made.after(seconds(made))
    made.carry_out()
    assert not made.planner.admissions.dry_run


def test_a_recorded_time_of_the_future_is_waited_for() -> None:
    made = Fleet(400, replace(AT_ONCE, budget=Budget(check=CheckLimit(new=1, within=300.0))))
    made.report(0, finding())
    made.carry_out()
    made.after(10.0)
    made.wall -= 200.0
    made.restart()
    made.report(1, finding())
    made.carry_out()
    assert made.marked() == [0]
    assert seconds(made) == pytest.approx(490.0)
