from __future__ import annotations

import pytest
from msgspec.structs import replace

from bench.simulation.__main__ import table_lines
from bench.simulation.episode import Episode, QuietDays
from bench.simulation.rollouts import Rollout
from bench.simulation.rows import FaultRow, QuietRow, RolloutRow, fault_row, quiet_row, rollout_row
from bench.simulation.table import HELD_OUT, Plan, Table
from nodeguard.simulate.figures import share
from nodeguard.simulate.outcome_counter import CheckSuppressed


def episode(detected: int = 1, seconds: tuple[float, ...] = (20.0,), **counts: int) -> Episode:
    values = {"expected": 1, "wrong": 0, "quarantines": 0, "max_healthy": 0, "wrongly": 0, **counts}
    return Episode(
        values["expected"],
        detected,
        seconds,
        values["wrong"],
        values["quarantines"],
        values["max_healthy"],
        (CheckSuppressed("port-down", 1.0, real=False, domain=""),) * values["wrongly"],
        values["wrongly"],
        is_suppressed=bool(detected),
    )


def test_a_fault_row_counts_detected_and_wrong_domains() -> None:
    episodes = [episode(seconds=(float(at),)) for at in range(1, 10)] + [episode(0, (), wrong=2, wrongly=1)]
    row = fault_row("leaf dead", episodes, [episode(0, (), quarantines=24)])
    assert (row.recall.hits, row.recall.of) == (9, 10)
    assert (row.precision.hits, row.precision.of) == (9, 11)
    assert row.recall.low < 0.9 < row.recall.high
    assert (row.p50, row.p95) == (5.0, 9.0)
    assert (row.without, row.quarantines, row.wrongly_suppressed) == (24.0, 0.0, 1)


def test_a_fault_without_a_domain_counts_suppressed_checks() -> None:
    row = fault_row("observer partition", [episode(1, expected=0), episode(0, (), expected=0)], [])
    assert (row.recall.hits, row.recall.of) == (1, 2)
    assert row.p50 == 20.0


def test_a_rollout_row_shows_the_worst_run() -> None:
    rollout = Rollout("gpu-reset-required", 0.1, 0.0)
    row = rollout_row(rollout, [episode(max_healthy=5), episode(0, (), max_healthy=15, wrong=1)])
    assert (row.max_quarantined, row.suppressed, row.p50, row.domains) == (15, share(1, 2), 20.0, 1)
    assert row.visible == (None, None)
    seen = replace(episode(), visible_seconds=(16.0,))
    assert rollout_row(rollout, [seen, episode()]).visible == (16.0, 16.0)


def test_quiet_days_are_counted_by_day() -> None:
    row = quiet_row(7500, [QuietDays(2.0, 1, 32, 0), QuietDays(2.0, 0, 0, 2)])
    assert (row.days, row.domains, row.nodes, row.suppressed) == (4.0, 0.25, 8.0, 0.5)
    assert row.low <= 0.25 <= row.high == pytest.approx(0.5)
    none = quiet_row(64, [QuietDays(1.0, 0, 0, 0)] * 10)
    assert (none.fleet_nodes, none.low) == (64, 0.0)
    assert none.high == pytest.approx(0.369, abs=1e-3)


def test_the_table_has_a_line_for_each_row() -> None:
    fault = FaultRow("leaf dead", share(9, 10), share(0, 0), 20.0, None, 24.4, 0.0, 0)
    rollout = RolloutRow(Rollout("gpu-reset-required", 0.1, 1800.0), 5, share(3, 4), 50.0, (15.0, None), 0)
    quiet = QuietRow(7500, 10.0, 0.1, 0.0, 0.3, 3.2, 0.5)
    other = FaultRow("rack power", share(10, 10), share(10, 10), 20.0, None, None, 0.0, 0)
    lines = list(table_lines(Table(Plan(first=HELD_OUT), (fault, other), (rollout,), quiet, ("leaf dead",))))
    assert "held-out seeds, from 10000" in lines[0]
    assert lines[3].startswith("leaf dead     0.90 [0.60, 0.98]")
    assert "20 s / -" in lines[3]
    assert "24.4 -> 0.0" in lines[3]
    assert " - -> 0.0" in lines[4]
    assert lines[5].startswith("all           0.95 [0.76, 0.99]  1.00 [0.72, 1.00]")
    assert lines[6] == "too few domains in this fleet: leaf dead"
    assert lines[9].startswith("gpu-reset-required on 10% over 30 min  5                0.75 [0.30, 0.95]")
    assert "15 s / -" in lines[9]
    assert "days of 7,500 nodes: 0.10 false domains a day [0.00, 0.30]" in lines[11]


def test_a_table_has_only_the_parts_that_ran() -> None:
    quiet = QuietRow(7500, 10.0, 0.1, 0.0, 0.3, 3.2, 0.5)
    lines = list(table_lines(Table(Plan(episodes=0, runs=0), (), (), quiet)))
    assert len(lines) == 3
