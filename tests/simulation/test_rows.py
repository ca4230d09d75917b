from __future__ import annotations

import pytest

from bench.simulation.episode import Episode, QuietDays
from bench.simulation.rollouts import Rollout
from bench.simulation.rows import fault_row, noise_row, rollout_row
from nodeguard.simulate.outcome_counter import CheckSuppressed


def episode(found: int = 1, took: tuple[float, ...] = (20.0,), **more: int) -> Episode:
    known = {"planted": 1, "wrong": 0, "quarantines": 0, "most": 0, "wrongly": 0, **more}
    return Episode(
        known["planted"],
        found,
        took,
        known["wrong"],
        known["quarantines"],
        known["most"],
        (CheckSuppressed("port-down", 1.0, real=False, domain=""),) * known["wrongly"],
        known["wrongly"],
        labelled=bool(found),
    )


def test_a_row_of_faults_counts_what_was_found_and_what_should_not_have_been() -> None:
    done = [episode(took=(float(at),)) for at in range(1, 10)] + [episode(0, (), wrong=2, wrongly=1)]
    row = fault_row("leaf dead", done, [episode(0, (), quarantines=24)])
    assert (row.recall.hits, row.recall.of) == (9, 10)
    assert (row.precision.hits, row.precision.of) == (9, 11)
    assert row.recall.low < 0.9 < row.recall.high
    assert (row.p50, row.p95) == (5.0, 9.0)
    assert (row.without, row.quarantines, row.wrong_holds) == (24.0, 0.0, 1)


def test_where_a_check_is_to_be_held_that_is_what_counts() -> None:
    row = fault_row("observer partition", [episode(1, planted=0), episode(0, (), planted=0)], [])
    assert (row.recall.hits, row.recall.of) == (1, 2)
    assert row.p50 == 20.0


def test_a_row_of_roll_outs_tells_the_worst_of_its_runs() -> None:
    one = Rollout("gpu-reset-required", 0.1, 0.0)
    row = rollout_row(one, [episode(most=5), episode(0, (), most=15, wrong=1)])
    assert (row.runs, row.most, row.held, row.p50, row.blamed) == (2, 15, 1, 20.0, 1)


def test_days_as_usual_are_told_by_the_day() -> None:
    row = noise_row([QuietDays(2.0, 1, 32, 0), QuietDays(2.0, 0, 0, 2)])
    assert (row.days, row.domains, row.marked, row.holds) == (4.0, 0.25, 8.0, 0.5)
    assert row.low <= 0.25 <= row.high == pytest.approx(0.5)
