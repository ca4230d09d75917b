"""Drains of a gang with pods on three nodes: all of its pods leave, or none does, however the requests, the views and
the leaders are timed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextlib import suppress
from typing import Any

import pytest
from msgspec.structs import replace

from nodeguard.fleet.act.drain_progress import drain_action
from nodeguard.fleet.act.drain_report import DrainState
from nodeguard.model.action import ActionState
from nodeguard.model.drain import DrainMode
from nodeguard.model.eviction import Eviction, EvictionState, PodReadError
from nodeguard.model.pod import NodePod, PodGroupKey, PodKey
from tests.aggregator.actions.drain_replicas import GANG, GRACE, LIMIT, NODE, OTHER, DrainReplica, candidate
from tests.aggregator.actions.drain_scene import Scene
from tests.aggregator.actions.random_drain_history import History
from tests.aggregator.actions.replicas import KilledError

TRAIN = PodGroupKey("team-a", "train")
REMOTE = "uid-2"
RANKS = {f"rank-{number}" for number in range(4)}


def spread(world: Scene | History, labels: dict[str, str] = GANG) -> None:
    """Replace the pods by a gang, with two pods on the faulty node and one on each of two others. One of the two on
    the faulty node holds the faulty GPU. labels: none for pods without a disruption budget.
    """
    world.pods.clear()
    world.whole = {TRAIN}
    places = ((NODE, "GPU-0"), (NODE, "GPU-1"), (OTHER, "GPU-0"), (REMOTE, "GPU-5"))
    for number, (node, gpu) in enumerate(places):
        world.create(node, f"rank-{number}", gpu, labels, group=TRAIN)
    world.sync()


def gang_scene(*, minimum: int = 0, faults: Collection[str] = (NODE,)) -> Scene:
    """Return a leader and faults of some nodes."""
    scene = Scene(minimum=minimum)
    spread(scene)
    scene.candidates = {node: candidate(node, scene.now) for node in faults}
    scene.replica.catch_up()
    return scene


def test_a_gang_that_leaves_now_gets_no_notice_of_another_fault() -> None:
    """The write would refuse the evictions in flight, each of which has used a part of the disruption budget."""
    scene = gang_scene(faults=(OTHER,))
    scene.candidates[NODE] = replace(candidate(NODE, scene.now), after=30.0)
    pods = [pod for _, pod in scene.pods.values()]
    request = drain_action(scene.candidates[OTHER], pods, scene.now, (TRAIN,), "alice")
    asyncio.run(scene.replica.action_store.reserve(request))
    scene.replica.catch_up()
    asyncio.run(scene.replica.loop_turn())
    assert scene.drain.state == ActionState.RUNNING
    scene.lead()
    scene.play(20.0)
    assert set(scene.evicted_names) == RANKS


def test_all_pods_of_the_gang_leave_and_the_drain_ends_with_the_last_one() -> None:
    scene = gang_scene()
    scene.play(5.0)
    assert set(scene.evicted_names) == RANKS
    [report] = scene.replica.runner.reports()
    assert report.pod_groups == (TRAIN,)
    [last] = [uid for uid, (node, _) in scene.pods.items() if node == REMOTE]
    scene.ends[last] = scene.now + GRACE + 30.0
    scene.play(GRACE + 10.0)
    assert [pod.key.uid for _, pod in scene.pods.values()] == [last]
    assert scene.drain.state == ActionState.RUNNING, "a pod on another node is not gone"
    scene.play(40.0)
    assert (scene.drain.state, scene.drain.carried_out) == (ActionState.SUCCEEDED, 4)
    assert scene.drain.message == (
        f"4 pods evicted from {NODE}, with the pods of PodGroup team-a/train on all nodes"
    )


@pytest.mark.parametrize("minimum", [1, 3, 4])
def test_a_budget_that_allows_a_part_keeps_the_gang(minimum: int) -> None:
    scene = gang_scene(minimum=minimum)
    scene.play(120.0)
    assert not scene.evicted
    assert not scene.stored()
    assert scene.reason == f"PodDisruptionBudget team-a/gang allows {4 - minimum} of 4 evictions now"


def test_a_group_that_may_lose_single_pods_loses_the_holder_only() -> None:
    scene = gang_scene()
    scene.whole.clear()
    scene.play(LIMIT)
    assert scene.evicted_names == ["rank-0"]
    assert scene.drain.pod_groups == ()


@pytest.mark.parametrize("request_name", ["leaves_whole", "group_pods"])
def test_a_gang_that_cannot_be_read_stays(monkeypatch: pytest.MonkeyPatch, request_name: str) -> None:
    scene = gang_scene()

    async def failing(*_: object) -> Any:
        raise PodReadError("no right to get podgroups")

    monkeypatch.setattr(scene.replica, request_name, failing)
    scene.play(LIMIT)
    assert not scene.evicted
    assert scene.reason == "no right to get podgroups"


def test_a_drain_that_has_evicted_reads_only_the_pods_that_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod that joins the gang after the first eviction stays: no later reading looks for it."""
    scene = gang_scene()
    scene.play(5.0)
    assert len(scene.evicted) == len(RANKS)
    readings = list[set[str] | None]()

    def watch() -> None:
        read = scene.replica.group_pods

        async def counted(groups: Any, recorded: Collection[PodKey] | None = None) -> tuple[NodePod, ...]:
            readings.append(None if recorded is None else {key.name for key in recorded})
            return await read(groups, recorded)

        monkeypatch.setattr(scene.replica, "group_pods", counted)

    watch()
    scene.play(5.0)
    elsewhere = {pod.key.name for host, pod in scene.pods.values() if host != NODE} & RANKS
    assert readings
    assert all(reading == elsewhere for reading in readings)
    scene.lead()
    readings.clear()
    watch()
    scene.play(GRACE)
    assert readings[0] is None, "a leader that takes a drain over reads all of its gang"
    assert None not in readings[1:]
    assert scene.drain.state == ActionState.SUCCEEDED


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


def test_observe_names_the_pods_of_all_nodes() -> None:
    scene = gang_scene()
    scene.mode = DrainMode.OBSERVE
    scene.play(10.0)
    assert not scene.evicted
    [report] = scene.replica.runner.reports()
    assert report.state == DrainState.WOULD_DRAIN
    assert {pod.name for pod in report.pods} == RANKS
    assert report.pod_groups == (TRAIN,)


def test_a_new_leader_evicts_the_rest_of_the_gang(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first leader evicts one pod and ends."""
    scene = gang_scene()
    evict = scene.evict

    def single(pod: NodePod, *, is_dry_run: bool) -> Eviction:
        if not is_dry_run and scene.evicted:
            return Eviction(EvictionState.FAILED, "no connection")
        return evict(pod, is_dry_run=is_dry_run)

    with monkeypatch.context() as patched:
        patched.setattr(scene, "evict", single)
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
    evict = scene.evict

    def single(pod: NodePod, *, is_dry_run: bool) -> Eviction:
        if not is_dry_run and scene.evicted:
            return Eviction(EvictionState.FAILED, "no connection")
        return evict(pod, is_dry_run=is_dry_run)

    async def failing(*_: object) -> Any:
        raise PodReadError("no right to list pods")

    with monkeypatch.context() as patched:
        patched.setattr(scene, "evict", single)
        scene.play(5.0)
        assert len(scene.evicted) == 1
        scene.lead()
        patched.setattr(scene.replica, "group_pods", failing)
        scene.play(LIMIT + 60.0)
        assert (scene.drain.state, len(scene.evicted)) == (ActionState.RUNNING, 1)
    scene.play(GRACE + 30.0)
    assert set(scene.evicted_names) == RANKS
    assert scene.drain.state == ActionState.SUCCEEDED


@pytest.mark.parametrize("labels", [GANG, {}], ids=["with a budget", "without a budget"])
def test_of_two_faulty_nodes_of_a_gang_one_has_its_drain(labels: dict[str, str]) -> None:
    scene = gang_scene(faults=(NODE, OTHER))
    spread(scene, labels)
    scene.create(OTHER, "single", "GPU-0", {})
    scene.play(LIMIT)
    assert set(scene.evicted_names) == {*RANKS, "single"}
    drains = sorted(scene.stored(), key=lambda drain: drain.node)
    assert [drain.state for drain in drains] == 2 * [ActionState.SUCCEEDED]
    gang = [drain for drain in drains if drain.pod_groups]
    assert len(gang) == 1, "the gang counts once"


def test_a_pod_that_joins_the_gang_before_its_begin_leaves_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The recorded set is outdated: it is withdrawn, and recorded again."""
    scene = gang_scene()
    read, readings = scene.replica.group_pods, list[int]()

    async def joining(groups: Collection[PodGroupKey], *recorded: Any) -> tuple[NodePod, ...]:
        readings.append(len(scene.stored()))
        if readings == [0, 1]:
            scene.create(REMOTE, "rank-4", "GPU-6", GANG, group=TRAIN)
            scene.sync()
        return await read(groups, *recorded)

    monkeypatch.setattr(scene.replica, "group_pods", joining)
    scene.play(LIMIT)
    assert set(scene.evicted_names) == {*RANKS, "rank-4"}
    assert scene.drain.attempt == 2


def test_a_gang_in_a_namespace_that_takes_long_to_list_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = gang_scene()
    read = scene.replica.group_pods

    async def slow(groups: Collection[PodGroupKey], *recorded: Any) -> tuple[NodePod, ...]:
        scene.now += 6.0 if groups else 0.0
        return await read(groups, *recorded)

    monkeypatch.setattr(scene.replica, "group_pods", slow)
    scene.play(LIMIT)
    assert set(scene.evicted_names) == RANKS
    assert [drain.attempt for drain in scene.stored()] == [1]


async def test_a_pod_that_joins_the_gang_right_before_its_first_eviction_leaves_too() -> None:
    """The begin is recorded with the pods of before, and their dry runs still count."""
    scene = gang_scene()
    while not scene.stored() or not scene.drain.begun_at:
        scene.replica.catch_up()
        await scene.replica.runner.turn()
        await scene.replica.loop_turn()
    assert not scene.evicted
    scene.create(REMOTE, "rank-4", "GPU-6", GANG, group=TRAIN)
    scene.sync()
    await scene.advance(LIMIT)
    assert set(scene.evicted_names) == {*RANKS, "rank-4"}
    assert [drain.state for drain in scene.stored()] == [ActionState.SUPERSEDED, ActionState.SUCCEEDED]


@pytest.mark.parametrize("is_replaced", [False, True])
def test_the_rest_of_a_gang_leaves_though_the_faulty_node_is_deleted(
    monkeypatch: pytest.MonkeyPatch, is_replaced: bool
) -> None:
    """An autoscaler deletes the Node once its pods are gone, and a budget holds a pod elsewhere back. is_replaced:
    also the leader.
    """
    scene = gang_scene()
    evict = scene.evict

    def refusing(pod: NodePod, *, is_dry_run: bool) -> Eviction:
        if not is_dry_run and pod.key.name == "rank-3":
            return Eviction(EvictionState.REFUSED, "not now")
        return evict(pod, is_dry_run=is_dry_run)

    with monkeypatch.context() as patched:
        patched.setattr(scene, "evict", refusing)
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


def test_a_gang_with_a_pod_on_a_node_with_a_hold_stays_until_the_hold_ends() -> None:
    scene = gang_scene()
    scene.holds[REMOTE] = "hold on the node: alice debugs it"
    scene.play(LIMIT)
    assert not scene.evicted
    assert not scene.stored()
    assert scene.reason == (
        f"pod team-a/rank-3 of PodGroup team-a/train is on {REMOTE}: hold on the node: alice debugs it"
    )
    scene.holds.clear()
    scene.play(90.0)
    assert set(scene.evicted_names) == RANKS


def test_a_hold_on_another_node_keeps_no_pod_of_a_gang_that_has_begun_to_leave(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = gang_scene()
    evict = scene.evict

    def holding(pod: NodePod, *, is_dry_run: bool) -> Eviction:
        if not is_dry_run:
            scene.holds[REMOTE] = "hold on the node"
        return evict(pod, is_dry_run=is_dry_run)

    monkeypatch.setattr(scene, "evict", holding)
    scene.play(LIMIT)
    assert set(scene.evicted_names) == RANKS


@pytest.mark.parametrize("faults", [(NODE,), (NODE, OTHER)], ids=["one faulty node", "two faulty nodes"])
def test_a_later_leader_evicts_the_rest_though_the_group_is_deleted(
    monkeypatch: pytest.MonkeyPatch, faults: Collection[str]
) -> None:
    """The first leader is replaced after two evictions. Of two faulty nodes the drain of one goes on, and the other
    has none.
    """
    scene = gang_scene(faults=faults)
    evict = scene.evict

    def refusing(pod: NodePod, *, is_dry_run: bool) -> Eviction:
        if not is_dry_run and len(scene.evicted) == 2:
            return Eviction(EvictionState.REFUSED, "not now")
        return evict(pod, is_dry_run=is_dry_run)

    with monkeypatch.context() as patched:
        patched.setattr(scene, "evict", refusing)
        scene.play(5.0)
        assert len(scene.evicted) == 2
        scene.whole.clear()
        scene.lead()
        scene.play(5.0)
    scene.play(LIMIT)
    assert set(scene.evicted_names) == RANKS
    assert [drain.state for drain in scene.stored()] == [ActionState.SUCCEEDED]


def test_the_pods_that_an_owner_creates_again_in_the_group_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = gang_scene()
    evict = scene.evict

    def replacing(pod: NodePod, *, is_dry_run: bool) -> Eviction:
        before = len(scene.evicted)
        response = evict(pod, is_dry_run=is_dry_run)
        if len(scene.evicted) > before:
            scene.create("uid-3", pod.key.name.replace("rank", "next"), "GPU-0", GANG, group=TRAIN)
        return response

    monkeypatch.setattr(scene, "evict", replacing)
    scene.play(LIMIT)
    assert set(scene.evicted_names) == RANKS
    assert scene.drain.state == ActionState.SUCCEEDED
    assert len(scene.pods) == 4
