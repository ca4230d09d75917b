"""Checks that fire on single nodes every day: a shared fault is found beside them, and they are no false alarm."""

from __future__ import annotations

import pytest

from tests.fleet.shared_causes.scene import BEFORE, DAY, HOUR, MINUTE, History, rows

pytestmark = pytest.mark.slow

CHECK = "gpu-thermal-slowdown"

# Throttles of a node and day, as a fleet reported them: 27 in 1,000 node-days, 400 times the simulator's usual rate.
THROTTLES = 0.027
BRIEF = (2 * MINUTE, 20 * MINUTE)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("nodes", "racks", "rack"), [(800, 15, 10), (256, 6, 8)])
def test_a_row_that_overheats_is_named_among_steady_throttles(
    nodes: int, racks: int, rack: int, seed: int
) -> None:
    history = History(rows(nodes, racks, rack), f"row {nodes} {seed}")
    history.noise("throttled", THROTTLES, DAY + 3 * HOUR, BRIEF)
    row = f"rack/row{seed % (nodes // (racks * rack))}"
    members = history.nodes(row)
    affected = history.random.sample(members, round(history.random.uniform(0.5, 1.0) * len(members)))
    history.fault("overheated", affected, DAY, within=history.random.uniform(10, 30) * MINUTE)
    outcome = history.run(DAY + 2.5 * HOUR)
    assert history.degraded == {row}
    assert CHECK not in history.suppressed
    assert {domain for domain in outcome.domains if not domain.startswith(row)} == set()


@pytest.mark.parametrize("seed", range(3))
def test_one_throttle_an_hour_before_does_not_hide_a_row(seed: int) -> None:
    history = History(rows(64, 2, 11), f"one throttle {seed}")
    other, row = history.random.sample(["rack/row0", "rack/row1"], 2)
    history.fault("throttled", [history.random.choice(history.nodes(other))], BEFORE, lasts=10 * MINUTE)
    affected = history.random.sample(history.nodes(row), 18)
    history.fault("overheated", affected, BEFORE + HOUR, within=20 * MINUTE)
    outcome = history.run(BEFORE + 3 * HOUR)
    assert (history.degraded, outcome.suppressed) == ({row}, set())


@pytest.mark.parametrize("seed", range(3))
def test_normal_throttles_hardly_ever_suppress_their_check(seed: int) -> None:
    history = History(rows(800, 15, 10), f"quiet {seed}")
    history.noise("throttled", THROTTLES, 3 * DAY, BRIEF)
    outcome = history.run(3 * DAY)
    assert outcome.suppressed_seconds.get(CHECK, 0.0) <= 0.01 * 3 * DAY
    assert outcome.domains == set()


@pytest.mark.parametrize("seed", range(3))
def test_a_false_alarm_of_a_noisy_check_is_suppressed(seed: int) -> None:
    """A check that fires on a third of the fleet within an hour is a false alarm, whatever is usual."""
    history = History(rows(800, 15, 10), f"false alarm {seed}")
    history.noise("throttled", THROTTLES, DAY + 3 * HOUR, BRIEF)
    affected = history.random.sample(range(800), 800 // 3)
    history.fault("throttled", affected, DAY, within=HOUR)
    outcome = history.run(DAY + 1.5 * HOUR)
    assert CHECK in history.suppressed
    assert outcome.domains == set()


@pytest.mark.parametrize("level", range(9))
def test_a_row_is_named_at_every_level_of_background(level: int) -> None:
    """From none to 100 throttles in 1,000 node-days."""
    rate = (0.0, 0.001, 0.003, 0.007, 0.015, 0.027, 0.045, 0.07, 0.1)[level]
    history = History(rows(256, 6, 8), f"level {level}")
    if rate:
        history.noise("throttled", rate, DAY + 3 * HOUR, BRIEF)
    row = f"rack/row{level % 5}"
    members = history.nodes(row)
    affected = history.random.sample(members, round(0.75 * len(members)))
    history.fault("overheated", affected, DAY, within=20 * MINUTE)
    history.run(DAY + 2.5 * HOUR)
    assert history.degraded == {row}
    assert CHECK not in history.suppressed


@pytest.mark.parametrize("seed", range(1))
def test_normal_throttles_after_a_false_alarm_hardly_suppress_the_check_again(seed: int) -> None:
    """Neither the throttles nor the time of a suppression count as usual: else the usual rate would fall with each."""
    history = History(rows(800, 15, 10), f"after a false alarm {seed}")
    history.noise("throttled", 0.1, 4 * DAY, BRIEF)
    history.fault("throttled", history.random.sample(range(800), 200), DAY, within=HOUR, lasts=HOUR)
    outcome = history.run(4 * DAY)
    assert outcome.suppressed_seconds[CHECK] <= 9 * HOUR
