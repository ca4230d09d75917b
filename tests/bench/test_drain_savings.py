from __future__ import annotations

from itertools import pairwise
from random import Random

from bench.drain_savings import (
    HOUR,
    POLICY,
    RANGES,
    TOPOLOGY,
    Fault,
    World,
    drain_begins,
    drawn_faults,
    drawn_world,
    outcome,
)

NEVER = 1e-9
LIMITS = POLICY.drain.limits
WORLD: World = {name: high for name, (_, high) in RANGES.items()}


def faults_of(nodes: list[int], **more: bool) -> list[Fault]:
    """Return faults at the same time, of which the work hangs for ten days."""
    return [Fault(0.0, node, job=4, ends_at=240 * HOUR, redone=600.0, **more) for node in nodes]


def test_a_burst_of_faults_begins_as_many_drains_as_an_hour_allows() -> None:
    begins = sorted(drain_begins(faults_of(list(range(0, 7500, 500)))).values())
    assert len(begins) == 15
    assert begins[LIMITS.hourly - 1] < 1.0
    for first, later in zip(begins, begins[LIMITS.hourly :], strict=False):
        assert HOUR <= later - first < HOUR + 1.0


def test_the_nodes_of_a_leaf_are_drained_one_after_the_other() -> None:
    leaf = TOPOLOGY.domains["fabric/p0/leaf0"][:3]
    ended = sorted(drain_begins(faults_of(list(leaf))).values())
    assert [round(later - first) for first, later in pairwise(ended)] == [30, 30]
    blocked = sorted(drain_begins(faults_of(list(leaf), is_unkillable=True)).values())
    assert round(blocked[1] - blocked[0]) == POLICY.drain.finish_within


def test_a_fault_that_may_not_leave_or_is_over_has_no_drain() -> None:
    assert drain_begins(faults_of([1], may_leave=False)) == {}
    over = Fault(0.0, 1, job=4, ends_at=1.0, redone=600.0, delay=5.0)
    assert drain_begins([over]) == {}


def test_drains_of_hanging_work_save_time_and_those_of_healthy_work_lose_it() -> None:
    hanging = outcome({**WORLD, "harmful": NEVER, "bursts": NEVER}, Random(1), 20.0)
    assert 0.0 < hanging.drained < hanging.without
    assert hanging.harm == 0.0
    healthy = outcome({**WORLD, "faults": NEVER}, Random(1), 20.0)
    assert healthy.without == 0.0
    assert healthy.saved == -healthy.harm < 0.0


def test_work_that_no_eviction_ends_is_not_helped() -> None:
    world = {**WORLD, "hanging": 1.0, "stuck": 1.0, "unkillable": 1.0, "harmful": NEVER, "bursts": NEVER}
    found = outcome(world, Random(1), 20.0)
    assert found.drains > 1.0
    assert found.saved == 0.0


def test_a_burst_of_harmful_findings_is_as_large_as_the_budget_of_its_check() -> None:
    world = {**WORLD, "faults": NEVER, "harmful": NEVER, "bursts": 36.5, "person": 1e9}
    faults = drawn_faults(world, Random(1), 100.0)
    assert len(faults) > POLICY.budget.check.active
    assert len(faults) % POLICY.budget.check.active == 0


def test_values_are_within_their_ranges() -> None:
    for ends in (False, True):
        world = drawn_world(Random(2), ends=ends)
        assert all(low <= world[name] <= high for name, (low, high) in RANGES.items())
        assert any(world[name] in RANGES[name] for name in RANGES) == ends
