"""Pods of two or three leaves with two to four nodes each."""

from __future__ import annotations

import pytest

from tests.fleet.shared_causes.scene import BEFORE, HOUR, History, fabric

SHAPES = [(leaves, leaf) for leaves in (2, 3) for leaf in (2, 3, 4)]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("leaves", "leaf"), SHAPES)
def test_a_pod_that_loses_its_links(leaves: int, leaf: int, seed: int) -> None:
    pod = leaves * leaf
    history = History(fabric(8 * pod, pod, leaf), f"small pod {leaves} {leaf} {seed}")
    name = f"fabric/p{history.random.randrange(8)}"
    history.fault("port-down", history.nodes(name), BEFORE)
    outcome = history.run(BEFORE + HOUR)
    assert (history.degraded, outcome.suppressed) == ({name}, set())


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("leaves", "leaf"), [shape for shape in SHAPES if shape[1] >= 3])
def test_a_leaf_that_loses_its_links(leaves: int, leaf: int, seed: int) -> None:
    pod = leaves * leaf
    history = History(fabric(8 * pod, pod, leaf), f"small leaf {leaves} {leaf} {seed}")
    name = f"fabric/p{history.random.randrange(8)}/leaf{history.random.randrange(leaves)}"
    history.fault("port-down", history.nodes(name), BEFORE)
    outcome = history.run(BEFORE + HOUR)
    assert (outcome.domains, outcome.suppressed) == ({name}, set())


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("leaves", "leaf"), SHAPES)
def test_single_links_of_many_pods_name_nothing(leaves: int, leaf: int, seed: int) -> None:
    pod = leaves * leaf
    history = History(fabric(8 * pod, pod, leaf), f"single links {leaves} {leaf} {seed}")
    for number in history.random.sample(range(8), 4):
        node = history.random.choice(history.nodes(f"fabric/p{number}"))
        history.fault("port-down", [node], BEFORE + history.random.uniform(0.0, 2 * HOUR))
    outcome = history.run(BEFORE + 3 * HOUR)
    assert (outcome.domains, outcome.suppressed) == (set(), set())
