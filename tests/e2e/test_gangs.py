"""Gangs stay off a degraded leaf, single-node work fills it, and the gang that waits for it gets it back: with the real
schedulers that place gangs.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator

import pytest

from tests.controlplane.cluster import NewCluster
from tests.controlplane.commands import GANGS
from tests.controlplane.objects import GPU
from tests.controlplane.queueing import start_kueue
from tests.daemonset.manifests import fill
from tests.e2e.devices import RULES, offer, published
from tests.e2e.gangs import GPUS, LEAVES, NODES, SIZE, Floor, Space
from tests.e2e.gangs_agents import ByAgents, by_agents
from tests.e2e.gangs_kinds import QUEUE, Gangs, Native, Queued
from tests.e2e.gangs_leaf import Faults

BAD, DOUBTED = LEAVES[3], LEAVES[1]

# One more than fits behind the seven other leaves.
NAMES = tuple(f"gang-{number:02}" for number in range(7 * NODES // SIZE + 1))

# Seconds from the end of a fault until a gang that waited is bound.
SOON = 20.0


@pytest.fixture(scope="module")
def floor(new_cluster: NewCluster) -> Iterator[Floor]:
    """Nodes of a control plane whose scheduler places gangs."""
    with new_cluster(flags=GANGS) as made:
        fill(made)
        yield Floor(made)


@pytest.fixture(scope="module")
def queued(floor: Floor) -> Queued:
    """Kueue beside it."""
    start_kueue(floor.cluster)
    return Queued(floor.cluster)


@pytest.fixture(params=["kube-scheduler", "Kueue"])
def gangs(request: pytest.FixtureRequest) -> Gangs:
    found: Queued | Native = request.getfixturevalue("queued") if request.param == "Kueue" else Native()
    return found


@pytest.fixture
def space(floor: Floor) -> Iterator[Space]:
    made = Space(floor, f"work-{secrets.token_hex(4)}")
    yield made
    made.clear()


@pytest.fixture(scope="module")
def agents(floor: Floor) -> Iterator[ByAgents]:
    """Agents of all nodes, and an aggregator that hears them."""
    with by_agents(floor) as made:
        yield made


@pytest.fixture
def faults(agents: ByAgents) -> Iterator[Faults]:
    yield agents
    agents.clear()


def test_gangs_go_around_a_degraded_leaf_that_others_fill(
    floor: Floor, gangs: Gangs, space: Space, faults: Faults
) -> None:
    doubted = floor.behind(DOUBTED)[:SIZE]
    faults.degrades(BAD)
    faults.suspects(*doubted)

    # Of three gangs there is no room: two behind the leaf, one on nodes that are suspect.
    gangs.submit(space, NAMES)
    room = len(NAMES) - 2
    floor.until(lambda: len(space.whole()) == room, gangs.by)
    floor.until(lambda: len(gangs.waiting(space)) == len(NAMES) - room, gangs.by)
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
    floor.until(lambda: len(space.whole()) == room + 1, gangs.by)
    took = time.monotonic() - begin
    print(f"bound {took:.1f} s after the leaf's recovery")
    assert took < SOON
    [gang] = space.whole().keys() - placed.keys()
    assert space.whole()[gang] == BAD


def test_without_marks_the_same_gangs_go_there(floor: Floor, gangs: Gangs, space: Space) -> None:
    gangs.submit(space, NAMES)
    floor.until(lambda: len(space.whole()) == len(NAMES), gangs.by)
    assert BAD in space.whole().values()


def test_a_pod_that_kueue_queues_fills_as_others_do(
    floor: Floor, queued: Queued, space: Space, faults: Faults
) -> None:
    faults.degrades(BAD)
    queued.open(space)
    space.work("stranger", labels={**QUEUE, "nodeguard.dev/fill": "false"}, leaf=BAD)
    space.work("single", labels=QUEUE, leaf=BAD)
    floor.until(lambda: space.bound().get("single") in floor.behind(BAD), queued.by)
    floor.until(lambda: queued.waiting(space), queued.by)
    assert space.bound().keys() == {"single"}


def test_whole_nodes_stay_off_one_with_a_bad_device_and_a_single_gpu_does_not(
    floor: Floor, space: Space
) -> None:
    api, leaf = floor.cluster.api, "leaf-devices"
    with floor.more(leaf, SIZE + 1, gpus=0) as names, published(floor.cluster, *names):
        offer(floor.cluster, GPU)
        bad = names[2]
        kept = {"driver": "gpu.nvidia.com", "pool": bad, "device": "gpu-5"}
        taint = {"key": "nodeguard.dev/quarantine", "value": "gpu-xid", "effect": "NoSchedule"}
        rule = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule", "metadata": {"name": bad}}
        api.post(RULES, {**rule, "spec": {"deviceSelector": kept, "taint": taint}})

        Native().submit(space, ["gang"], leaf)
        floor.until(lambda: space.whole() == {"gang": leaf})
        assert set(space.members()["gang"]) == {*names} - {bad}

        for number in range(GPUS):
            space.work(f"single-{number}", gpus=1, leaf=leaf)
        floor.until(lambda: len(space.bound()) == GPUS - 1)
        assert set(space.bound().values()) == {bad}
        [last] = {f"single-{number}" for number in range(GPUS)} - space.bound().keys()
        floor.until(lambda: space.refused(last))

        api.delete(f"{RULES}/{bad}")
        floor.until(lambda: len(space.bound()) == GPUS)
