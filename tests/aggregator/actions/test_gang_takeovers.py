"""Drains of a gang that a later leader carries on, or without what they began with: their candidate, their Node, their
PodGroup, or an answer of the API server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any

import pytest

from nodeguard.fleet.act.drain_progress import drain_action
from nodeguard.fleet.act.drain_report import DrainState
from nodeguard.model.action import ActionState
from nodeguard.model.drain import DrainMode
from nodeguard.model.eviction import Eviction, EvictionState, PodReadError
from nodeguard.model.pod import NodePod
from tests.aggregator.actions.drain_replicas import GRACE, LIMIT, NODE, OTHER, DrainReplica
from tests.aggregator.actions.drain_scene import Scene
from tests.aggregator.actions.gang_scene import RANKS, TRAIN, gang_scene
from tests.aggregator.actions.replicas import KilledError

NO_CONNECTION = Eviction(EvictionState.FAILED, "no connection")
REFUSED = Eviction(EvictionState.REFUSED, "not now")


def answering(scene: Scene, answer: Eviction, fails: Callable[[NodePod], bool]) -> Callable[..., Eviction]:
    """Return the evictions of a scene with another answer where one fails. Dry runs succeed."""
    evict = scene.evict
    return lambda pod, *, is_dry_run: (
        answer if not is_dry_run and fails(pod) else evict(pod, is_dry_run=is_dry_run)
    )


def test_a_running_drain_waits_while_the_gang_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = gang_scene()
    scene.play(5.0)

    async def failing(*_: object) -> Any:
        raise PodReadError("no response")

    with monkeypatch.context() as patched:
        patched.setattr(scene.replica, "group_pods", failing)
        scene.play(GRACE + 20.0)
        [report] = scene.replica.runner.reports()
        assert (report.state, report.reason) == (DrainState.RUNNING, "no response")
    scene.play(20.0)
    assert scene.drain.state == ActionState.SUCCEEDED


def test_a_new_leader_evicts_the_rest_of_the_gang(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first leader evicts one pod and ends."""
    scene = gang_scene()
    with monkeypatch.context() as patched:
        patched.setattr(scene, "evict", answering(scene, NO_CONNECTION, lambda _: bool(scene.evicted)))
        scene.play(5.0)
    assert len(scene.evicted) == 1
    scene.candidates = {}
    scene.lead()
    scene.play(LIMIT)
    assert set(scene.evicted_names) == RANKS
    assert [drain.state for drain in scene.stored()] == [ActionState.SUCCEEDED]


@pytest.mark.parametrize("absent", [0.0, LIMIT + 60.0, 10 * LIMIT])
@pytest.mark.parametrize("by", ["", "alice"])
@pytest.mark.parametrize("is_new", [False, True], ids=["a standby", "a new process"])
def test_a_leader_that_takes_over_evicts_the_rest_however_late(
    monkeypatch: pytest.MonkeyPatch, absent: float, by: str, is_new: bool
) -> None:
    """The leader is killed after three of four evictions. absent: seconds without one."""
    scene = gang_scene()
    if by:
        scene.mode = DrainMode.OBSERVE
        pods = [pod for _, pod in scene.pods.values()]
        request = drain_action(scene.candidates[NODE], pods, scene.now, (TRAIN,), by)
        asyncio.run(scene.replica.action_store.reserve(request))
    killed, standby = scene.replica, DrainReplica(scene)

    async def lose() -> None:
        while len(scene.evicted) < 3:
            for replica in (killed, standby):
                replica.catch_up()
                await replica.runner.turn()
            await killed.loop_turn()

    evict = killed.evict

    async def dying(pod: NodePod, *, is_dry_run: bool) -> Eviction:
        if not is_dry_run and len(scene.evicted) == 3:
            raise KilledError
        return await evict(pod, is_dry_run=is_dry_run)

    monkeypatch.setattr(killed, "evict", dying)
    with suppress(KilledError):
        asyncio.run(lose())
    assert len(scene.evicted) == 3
    if is_new:
        scene.now += absent
        scene.lead()
    else:
        for _ in range(int(absent)):
            scene.now += 1.0
            scene.sync()
            standby.catch_up()
            asyncio.run(standby.runner.turn())
        scene.replica, standby.is_leader = standby, True
    scene.play(GRACE + 15.0)
    assert set(scene.evicted_names) == RANKS
    assert [(drain.state, drain.carried_out) for drain in scene.stored()] == [(ActionState.SUCCEEDED, 4)]


def test_pods_that_are_read_again_after_the_time_of_their_drain_are_evicted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A new leader has no right to list pods until the time of the drain is over."""
    scene = gang_scene()

    async def failing(*_: object) -> Any:
        raise PodReadError("no right to list pods")

    with monkeypatch.context() as patched:
        patched.setattr(scene, "evict", answering(scene, NO_CONNECTION, lambda _: bool(scene.evicted)))
        scene.play(5.0)
        assert len(scene.evicted) == 1
        scene.lead()
        patched.setattr(scene.replica, "group_pods", failing)
        scene.play(LIMIT + 60.0)
        assert (scene.drain.state, len(scene.evicted)) == (ActionState.RUNNING, 1)
    scene.play(GRACE + 30.0)
    assert set(scene.evicted_names) == RANKS
    assert scene.drain.state == ActionState.SUCCEEDED


@pytest.mark.parametrize("is_replaced", [False, True])
def test_the_rest_of_a_gang_leaves_though_the_faulty_node_is_deleted(
    monkeypatch: pytest.MonkeyPatch, is_replaced: bool
) -> None:
    """An autoscaler deletes the Node once its pods are gone, and a budget holds a pod elsewhere back. is_replaced:
    also the leader.
    """
    scene = gang_scene()
    with monkeypatch.context() as patched:
        patched.setattr(scene, "evict", answering(scene, REFUSED, lambda pod: pod.key.name == "rank-3"))
        scene.play(5.0)
        assert len(scene.evicted) == 3
        scene.nodes.discard(NODE)
        scene.quarantined.discard(NODE)
        scene.candidates.clear()
        scene.play(20.0)
    if is_replaced:
        scene.lead()
    scene.play(60.0)
    assert set(scene.evicted_names) == RANKS
    assert (scene.drain.state, scene.drain.released_at > 0) == (ActionState.SUCCEEDED, True)


@pytest.mark.parametrize("faults", [(NODE,), (NODE, OTHER)], ids=["one faulty node", "two faulty nodes"])
def test_a_later_leader_evicts_the_rest_though_the_group_is_deleted(
    monkeypatch: pytest.MonkeyPatch, faults: Collection[str]
) -> None:
    """The first leader is replaced after two evictions. Of two faulty nodes the drain of one goes on, and the other
    has none.
    """
    scene = gang_scene(faults=faults)
    with monkeypatch.context() as patched:
        patched.setattr(scene, "evict", answering(scene, REFUSED, lambda _: len(scene.evicted) == 2))
        scene.play(5.0)
        assert len(scene.evicted) == 2
        scene.whole.clear()
        scene.lead()
        scene.play(5.0)
    scene.play(LIMIT)
    assert set(scene.evicted_names) == RANKS
    assert [drain.state for drain in scene.stored()] == [ActionState.SUCCEEDED]
