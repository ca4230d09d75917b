"""Drains of a gang with pods on three nodes: all of its pods leave, or none does."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

import pytest
from msgspec.structs import replace

from nodeguard.fleet.act.drain_progress import drain_action
from nodeguard.fleet.act.drain_report import DrainState
from nodeguard.model.action import ActionState
from nodeguard.model.drain import DrainMode
from nodeguard.model.eviction import Eviction, PodReadError
from nodeguard.model.pod import NodePod, PodGroupKey, PodKey
from tests.aggregator.actions.drain_replicas import GANG, GRACE, LIMIT, NODE, OTHER, candidate
from tests.aggregator.actions.gang_scene import RANKS, REMOTE, TRAIN, gang_scene, spread


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


@pytest.mark.parametrize("minimum", [1, 3])
def test_a_budget_that_allows_a_part_keeps_the_gang(minimum: int) -> None:
    scene = gang_scene(minimum=minimum)
    scene.play(120.0)
    assert not scene.evicted
    assert not scene.stored()
    assert scene.reason == f"PodDisruptionBudget team-a/gang allows {4 - minimum} of 4 evictions now"


def test_a_gang_with_a_budget_that_allows_nothing_is_read_on_its_node_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its namespace would be listed once a minute for as long as the fault lasts."""
    scene = gang_scene(minimum=4)
    read = scene.replica.group_pods

    async def unread(*_: object) -> Any:
        raise AssertionError("a list of the namespace")

    monkeypatch.setattr(scene.replica, "group_pods", unread)
    scene.play(120.0)
    assert scene.reason == "PodDisruptionBudget team-a/gang allows 0 of 1 evictions now"
    [report] = scene.replica.runner.reports()
    assert ([pod.name for pod in report.pods], report.pod_groups) == (["rank-0"], (TRAIN,))
    monkeypatch.setattr(scene.replica, "group_pods", read)
    scene.minimum = 0
    scene.play(70.0)
    assert set(scene.evicted_names) == RANKS


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


def test_observe_names_the_pods_of_all_nodes() -> None:
    scene = gang_scene()
    scene.mode = DrainMode.OBSERVE
    scene.play(10.0)
    assert not scene.evicted
    [report] = scene.replica.runner.reports()
    assert report.state == DrainState.WOULD_DRAIN
    assert {pod.name for pod in report.pods} == RANKS
    assert report.pod_groups == (TRAIN,)


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


def test_a_gang_with_a_pod_on_a_node_with_a_hold_stays_until_the_hold_ends() -> None:
    scene = gang_scene()
    scene.holds[REMOTE] = "the node is on hold: alice debugs it"
    scene.play(LIMIT)
    assert not scene.evicted
    assert not scene.stored()
    assert scene.reason == (
        f"pod team-a/rank-3 of PodGroup team-a/train is on {REMOTE}: the node is on hold: alice debugs it"
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
            scene.holds[REMOTE] = "the node is on hold"
        return evict(pod, is_dry_run=is_dry_run)

    monkeypatch.setattr(scene, "evict", holding)
    scene.play(LIMIT)
    assert set(scene.evicted_names) == RANKS


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
