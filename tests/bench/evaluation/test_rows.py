from __future__ import annotations

import pytest
from msgspec.structs import replace

from bench.evaluation.episode import Episode, NormalDays
from bench.evaluation.figures import share
from bench.evaluation.rollouts import Rollout
from bench.evaluation.rows import fault_row, normal_days_row, rollout_row
from nodeguard.simulate.outcome_counter import CheckSuppressed


def episode(
    detected: int = 1,
    seconds: tuple[float, ...] = (20.0,),
    *,
    expected: int = 1,
    wrong: int = 0,
    quarantines: int = 0,
    max_healthy: int = 0,
    wrongly: int = 0,
) -> Episode:
    return Episode(
        expected=expected,
        detected=detected,
        detection_seconds=seconds,
        wrong=wrong,
        quarantines=quarantines,
        max_healthy_quarantined=max_healthy,
        suppressed=(CheckSuppressed("port-down", 1.0, real=False, domain=""),) * wrongly,
        wrongly_suppressed=wrongly,
        is_suppressed=bool(detected),
    )


def normal(days: float, domains: int = 0, nodes: int = 0, suppressed: int = 0) -> NormalDays:
    return NormalDays(days=days, domains=domains, nodes=nodes, suppressed=suppressed)


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


def test_normal_days_are_counted_by_day() -> None:
    row = normal_days_row(7500, [normal(2.0, domains=1, nodes=32), normal(2.0, suppressed=2)])
    assert (row.days, row.domains, row.nodes, row.suppressed) == (4.0, 0.25, 8.0, 0.5)
    assert row.low <= 0.25 <= row.high == pytest.approx(0.5)
    none = normal_days_row(64, [normal(1.0)] * 10)
    assert (none.fleet_nodes, none.low) == (64, 0.0)
    assert none.high == pytest.approx(0.369, abs=1e-3)
