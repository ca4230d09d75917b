"""Restarts of the aggregator: what it names does not depend on them."""

from __future__ import annotations

from random import Random

import pytest

from nodeguard.model.mark import Mark
from tests.fleet.shared_causes.scene import BEFORE, HOUR, MINUTE, History, fabric, rows

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["port-down", "node-down"])
def test_a_restart_after_the_maintenance_of_a_leaf_names_nothing(kind: str, seed: int) -> None:
    """The nodes of a leaf are cordoned, its switch is off for half an hour, and they are uncordoned."""
    history = History(fabric(256, 64, 16), f"maintenance {kind} {seed}")
    leaf = history.random.choice(history.topology.domains_at("fabric", 2))
    members = history.nodes(leaf)
    history.cordon(members, BEFORE, BEFORE + 45 * MINUTE)
    history.fault(kind, members, BEFORE + 10 * MINUTE, lasts=30 * MINUTE)
    restart = BEFORE + 45 * MINUTE + history.random.uniform(1.0, 2 * HOUR)
    outcome = history.run(restart + HOUR, [restart])
    assert (outcome.named, outcome.suppressions) == ([], [])
    assert not {mark for _, mark in outcome.ever_marked} & {Mark.DOMAIN_DEGRADED}
    assert {node for node, marks in outcome.marks.items() if marks} == set()


@pytest.mark.parametrize("seed", range(3))
def test_a_restart_during_the_maintenance_of_a_leaf_names_nothing(seed: int) -> None:
    """Links of cordoned nodes are lost just before the aggregator restarts, and stay in their reports."""
    history = History(fabric(256, 64, 16), f"end of maintenance {seed}")
    leaf = history.random.choice(history.topology.domains_at("fabric", 2))
    members = history.nodes(leaf)
    history.cordon(members, BEFORE, BEFORE + 45 * MINUTE)
    history.fault("port-flap", members, BEFORE + 30 * MINUTE, within=8 * MINUTE, lasts=2 * HOUR)
    restart = BEFORE + history.random.uniform(38.2, 38.8) * MINUTE
    outcome = history.run(BEFORE + 2 * HOUR, [restart])
    assert (outcome.named, outcome.suppressions) == ([], [])
    assert {node for node, marks in outcome.marks.items() if marks} == set()


@pytest.mark.parametrize("seed", range(3))
def test_a_restart_at_rest_changes_no_mark(seed: int) -> None:
    """A leaf is degraded, some nodes have faults of their own, and for an hour nothing has changed."""
    history = History(fabric(256, 64, 16), f"rest {seed}")
    leaf, *others = history.random.sample(history.topology.domains_at("fabric", 2), 4)
    history.fault("port-down", history.nodes(leaf), BEFORE, lasts=10 * HOUR)
    for other in others:
        node = history.random.choice(history.nodes(other))
        history.fault("gpu-lost", [node], BEFORE - history.random.uniform(0.0, 3 * HOUR), lasts=14 * HOUR)
        history.fault("port-flap", [history.random.choice(history.nodes(other))], BEFORE + 20 * MINUTE)
    marks: list[object] = []
    restart = BEFORE + 1.5 * HOUR
    for restarts in ([], [restart]):
        run = history.again()
        outcome = run.run(restart + HOUR, restarts)
        marks.append((outcome.marks, run.degraded, run.suppressed))
    assert marks[0] == marks[1]


@pytest.mark.parametrize("seed", range(3))
def test_a_slow_leaf_keeps_its_votes_over_a_restart(seed: int) -> None:
    """Links of a leaf are lost one after another; the aggregator restarts before enough of them are."""
    history = History(fabric(512, 128, 32), f"slow {seed}")
    leaf = history.random.choice(history.topology.domains_at("fabric", 2))
    affected = history.random.sample(history.nodes(leaf), 16)
    gap = history.random.uniform(3.0, 5.0) * MINUTE
    for number, node in enumerate(affected):
        history.fault("port-flap", [node], BEFORE + number * gap)
    restart = BEFORE + 3.5 * gap
    outcome = history.again().run(BEFORE + 17 * gap, [restart])
    without = history.again().run(BEFORE + 17 * gap)
    assert without.domains == outcome.domains == {leaf}
    assert outcome.named[0][1] <= without.named[0][1] + MINUTE


@pytest.mark.parametrize("seed", range(3))
def test_a_row_that_overheats_slowly_is_named_after_a_restart(seed: int) -> None:
    history = History(rows(256, 6, 8), f"slow row {seed}")
    row = history.random.choice([f"rack/row{number}" for number in range(5)])
    affected = history.random.sample(history.nodes(row), 30)
    history.fault("overheated", affected, BEFORE, within=30 * MINUTE)
    restart = BEFORE + Random(seed).uniform(2.0, 25.0) * MINUTE
    history.run(BEFORE + 2 * HOUR, [restart])
    assert (history.degraded, history.suppressed) == ({row}, set())


def test_the_marks_of_a_dead_leaf_stay_over_a_restart() -> None:
    history = History(fabric(256, 64, 16))
    leaf = "fabric/p1/leaf2"
    history.fault("port-down", history.nodes(leaf), BEFORE, lasts=10 * HOUR)
    outcome = history.run(BEFORE + 2 * HOUR, [BEFORE + HOUR])
    assert outcome.domains == history.degraded == {leaf}
    assert outcome.with_mark(Mark.DOMAIN_DEGRADED) == set(history.nodes(leaf))
