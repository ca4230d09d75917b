"""Gangs stay off a degraded leaf, single-node work fills it, and the gang that waits for it gets it back: with the real
schedulers that place gangs.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator

import pytest

from tests.controlplane.cluster import Cluster, cluster
from tests.controlplane.commands import GANGS
from tests.controlplane.queueing import start_kueue
from tests.daemonset.manifests import fill
from tests.e2e.gangs import LEAVES, NODES, SIZE, Floor, Gangs, Native, Queued, Space
from tests.e2e.gangs_leaf import ByHand, Faults

BAD, DOUBTED = LEAVES[3], LEAVES[1]

# One more than fits behind the seven other leaves.
NAMES = tuple(f"gang-{number:02}" for number in range(7 * NODES // SIZE + 1))

# Seconds from the end of a fault until a gang that waited is bound.
SOON = 20.0


@pytest.fixture(scope="module")
def alone() -> Iterator[Cluster]:
    """A control plane whose scheduler places gangs, and Kueue beside it."""
    with cluster(flags=GANGS) as made:
        start_kueue(made)
        fill(made)
        yield made


@pytest.fixture(scope="module")
def floor(alone: Cluster) -> Floor:
    return Floor(alone)


@pytest.fixture(scope="module")
def queued(alone: Cluster) -> Queued:
    return Queued(alone)


@pytest.fixture(params=["kube-scheduler", "Kueue"])
def gangs(request: pytest.FixtureRequest, queued: Queued) -> Gangs:
    return queued if request.param == "Kueue" else Native()


@pytest.fixture
def space(floor: Floor) -> Iterator[Space]:
    made = Space(floor, f"work-{secrets.token_hex(4)}")
    yield made
    made.clear()


@pytest.fixture
def faults(floor: Floor) -> Iterator[Faults]:
    made = ByHand(floor)
    yield made
    made.clear()


def test_gangs_go_around_a_degraded_leaf_that_others_fill(
    floor: Floor, gangs: Gangs, space: Space, faults: Faults
) -> None:
    doubted = floor.behind(DOUBTED)[:SIZE]
    faults.degrades(BAD)
    faults.suspects(*doubted)

    # Of three gangs there is no room: two behind the leaf, one on nodes that are suspect.
    gangs.submit(space, NAMES)
    room = len(NAMES) - 2
    floor.until(lambda: len(space.whole()) == room)
    floor.until(lambda: len(gangs.waiting(space)) == len(NAMES) - room)
    placed = space.members()
    assert placed.keys() == set(NAMES) - gangs.waiting(space)
    taken = {name for names in placed.values() for name in names}
    assert taken.isdisjoint([*floor.behind(BAD), *doubted])

    # Who has not asked for it waits, too.
    space.work("stranger", labels={"nodeguard.dev/fill": "false"})
    assert "untolerated taint" in floor.until(lambda: space.refused("stranger"))
    space.end("stranger")

    # Single-node work takes what they leave.
    singles = [f"single-{number:02}" for number in range(NODES + SIZE)]
    for name in singles:
        space.work(name)
    floor.until(lambda: len(space.bound()) == len(singles))
    assert sorted(space.bound().values()) == sorted([*floor.behind(BAD), *doubted])
    assert space.members() == placed

    # Half of the leaf is free when it recovers: one of the gangs gets it, beside the work that goes on.
    there = [name for name, place in space.bound().items() if place in floor.behind(BAD)]
    space.end(*there[:SIZE])
    begin = time.monotonic()
    faults.recovers(BAD)
    floor.until(lambda: len(space.whole()) == room + 1)
    took = time.monotonic() - begin
    print(f"bound {took:.1f} s after the leaf's recovery")
    assert took < SOON
    [(gang, leaf)] = space.whole().items() - {(name, space.whole()[name]) for name in placed}
    assert leaf == BAD
    assert gang not in placed


def test_without_marks_the_same_gangs_go_there(floor: Floor, gangs: Gangs, space: Space) -> None:
    gangs.submit(space, NAMES)
    floor.until(lambda: len(space.whole()) == len(NAMES))
    assert BAD in space.whole().values()
