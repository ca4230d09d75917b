"""Drains between which something happens: a pod changes, a leader takes over, a node does not answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from nodeguard.fleet.act.drain_report import DrainState
from nodeguard.model.action import ActionState, NodeAction
from nodeguard.model.action_store import ActionStoreError
from nodeguard.model.drain import DrainMode
from nodeguard.model.eviction import Eviction, EvictionState
from nodeguard.model.pod import NodePod
from tests.aggregator.actions.drain_replicas import (
    GANG,
    NODE,
    OTHER,
    DrainReplica,
    PodCluster,
    candidate,
)
from tests.aggregator.actions.drain_scene import GANG_NAMES, Scene
from tests.aggregator.actions.test_limited_drains import carry_on, started
from tests.waiting import in_background, until_async


class Evictions:
    """The evictions that a world was asked for. answer: its response to one, if that is not its own."""

    def __init__(
        self,
        world: PodCluster,
        monkeypatch: pytest.MonkeyPatch,
        answer: Callable[[NodePod], Eviction | None] = lambda _: None,
    ) -> None:
        self.dry_runs, self.evictions = list[str](), list[str]()
        evict = world.evict

        def recorded(pod: NodePod, *, is_dry_run: bool) -> Eviction:
            (self.dry_runs if is_dry_run else self.evictions).append(pod.key.name)
            other = None if is_dry_run else answer(pod)
            return other or evict(pod, is_dry_run=is_dry_run)

        monkeypatch.setattr(world, "evict", recorded)


async def stored(replica: DrainReplica) -> None:
    """Store what the runner requests, until cancelled."""
    while True:
        replica.catch_up()
        replica.runner.wake()
        await replica.loop_turn()
        await asyncio.sleep(0.005)


def test_a_first_pod_that_changes_after_it_was_read_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kubelet reports the status of a pod at any time."""
    scene = Scene()
    changes = [1, 2, 3]

    def changing(pod: NodePod) -> None:
        if changes:
            changes.pop()
            scene.change(pod.key.uid)

    requests = Evictions(scene, monkeypatch, changing)
    scene.play(5.0)
    assert scene.evicted_names == GANG_NAMES
    # An eviction of a pod that has changed uses the budget, so the last pod has to wait for the controller.
    assert requests.evictions == ["gang-0"] * 4 + [*GANG_NAMES[1:], "gang-3"]
    assert [drain.attempt for drain in scene.stored()] == [1]


@pytest.mark.parametrize("state", [EvictionState.REFUSED, EvictionState.FAILED, EvictionState.FORBIDDEN])
async def test_first_evictions_that_are_refused_use_no_limit(
    state: EvictionState, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = PodCluster()
    replica = started(world, NODE)
    Evictions(world, monkeypatch, lambda pod: Eviction(state, "not now") if pod.labels == GANG else None)
    await carry_on(world, replica, 600)
    withdrawn = [(drain.state, drain.begun_at) for drain in world.stored()]
    assert set(withdrawn) == {(ActionState.SUPERSEDED, 0)}
    assert 5 < len(withdrawn) < 20
    [report] = replica.runner.reports()
    assert (report.state, report.reason) == (DrainState.WAITS, "pod team-a/gang-0: not now")
    world.candidates[OTHER] = candidate(OTHER, world.now)
    await carry_on(world, replica, 30)
    assert [drain.state for drain in world.stored() if drain.node == OTHER] == [ActionState.SUCCEEDED]


async def test_a_successor_that_learns_late_of_the_begin_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """It sees the record as not begun, and a pause, so it withdraws the drain: the store refuses that."""
    scene = Scene()
    first, second = scene.replica, DrainReplica(scene)
    while not scene.stored() or scene.drain.state != ActionState.RUNNING:
        await scene.advance(0.5)
    second.catch_up()
    Evictions(
        scene,
        monkeypatch,
        lambda _: (
            Eviction(EvictionState.REFUSED, "budget") if len(scene.evicted) == 2 and first.is_leader else None
        ),
    )
    while not scene.evicted:
        await scene.advance(0.5)
    assert len(scene.evicted) == 2
    first.is_leader, second.is_leader = False, True
    scene.replica = second
    scene.candidates[NODE] = replace(scene.candidates[NODE], blocker="paused")
    second.read()
    await second.runner.turn()
    await second.loop_turn()
    await scene.advance(60.0)
    assert scene.evicted_names == GANG_NAMES
    assert [drain.state for drain in scene.stored()] == [ActionState.SUCCEEDED]


async def test_a_successor_that_learns_late_of_a_withdrawal_evicts_nothing() -> None:
    """The begin is recorded, a pause withdraws the drain, and its end reaches the watch of the successor later."""
    scene = Scene()
    first, second = scene.replica, DrainReplica(scene)
    present = scene.candidates[NODE]
    while not scene.stored() or not scene.drain.begun_at:
        first.catch_up()
        await first.runner.turn()
        await first.loop_turn()
    second.catch_up()
    scene.candidates[NODE] = replace(present, blocker="paused")
    await scene.advance(2.0)
    assert scene.drain.state == ActionState.SUPERSEDED
    scene.pods.pop(scene.drain.pods[0].uid)
    first.is_leader, second.is_leader = False, True
    second.read()
    await second.runner.turn()
    assert not scene.evicted


async def test_a_successor_begins_what_its_predecessor_has_not() -> None:
    """The begin is recorded, and the leader is killed before the first eviction."""
    scene = Scene()
    while not scene.stored() or not scene.drain.begun_at:
        scene.replica.catch_up()
        await scene.replica.runner.turn()
        await scene.replica.loop_turn()
    scene.lead()
    await scene.advance(60.0)
    assert scene.evicted_names == GANG_NAMES
    assert (scene.drain.state, scene.drain.attempt) == (ActionState.SUCCEEDED, 1)


async def test_a_node_that_does_not_answer_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    scene.candidates |= {f"slow-{number}": candidate(f"slow-{number}", 0.0) for number in range(3)}
    replica = scene.replica
    node_pods = replica.node_pods

    async def blocked(node: str) -> tuple[NodePod, ...]:
        if node.startswith("slow"):
            await asyncio.Event().wait()
        return await node_pods(node)

    monkeypatch.setattr(replica, "node_pods", blocked)

    async with in_background(replica.runner.run()), in_background(stored(replica)):
        await until_async(lambda: len(scene.evicted) == 4)
    assert scene.drain.state == ActionState.RUNNING


async def test_an_internal_error_of_a_node_delays_no_other(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene()
    scene.candidates[OTHER] = candidate(OTHER, 0.0)
    replica = scene.replica
    node_pods = replica.node_pods

    async def faulty(node: str) -> tuple[NodePod, ...]:
        if node == OTHER:
            raise ValueError("a pod without a name")
        return await node_pods(node)

    monkeypatch.setattr(replica, "node_pods", faulty)

    async with in_background(replica.runner.run()), in_background(stored(replica)):
        await until_async(lambda: len(scene.evicted) == 4)
    assert "internal error in a drain, please report it" in caplog.text
    assert "a pod without a name" in caplog.text


@pytest.mark.parametrize("mode", [DrainMode.OBSERVE, DrainMode.ENFORCE])
async def test_only_a_set_within_the_limits_is_tried(
    mode: DrainMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = PodCluster()
    world.mode = mode
    requests = Evictions(world, monkeypatch)
    replica = started(world, OTHER, NODE)
    await carry_on(world, replica, 15)
    requests.dry_runs.clear()
    await carry_on(world, replica, 3600)
    if mode == DrainMode.OBSERVE:
        assert set(requests.dry_runs) == {"single"}
        assert len(requests.dry_runs) <= 10, "less often as time passes"
        # No drain runs, so none waits for a limit.
        assert {report.state for report in replica.runner.reports()} == {DrainState.WOULD_DRAIN}
    else:
        assert requests.dry_runs == GANG_NAMES


async def test_a_set_that_waits_for_a_limit_leaves_as_soon_as_the_limit_allows_it() -> None:
    world = PodCluster()
    replica = started(world, OTHER, NODE)
    await carry_on(world, replica, 300)
    first, second = world.stored()
    assert (first.node, second.node) == (OTHER, NODE)
    assert second.created_at - first.changed_at <= 2


async def test_a_begin_that_is_seen_while_the_set_is_read_is_judged_by_the_pods(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The successor reads the pods of a drain that has not begun, as far as it knows."""
    scene = Scene()
    first, second = scene.replica, DrainReplica(scene)
    while not scene.stored() or scene.drain.state != ActionState.RUNNING:
        await scene.advance(0.5)
    second.catch_up()
    second.is_leader = True
    await second.runner._follow_session()
    read, go_on = asyncio.Event(), asyncio.Event()
    node_pods = second.node_pods

    async def slow(node: str) -> tuple[NodePod, ...]:
        read.set()
        await go_on.wait()
        return await node_pods(node)

    monkeypatch.setattr(second, "node_pods", slow)
    second.runner._start_due()
    await read.wait()
    while len(scene.evicted) < 4:
        await scene.advance(0.5)
    del scene.pods[scene.drain.pods[0].uid], scene.ends[scene.drain.pods[0].uid]
    first.is_leader = False
    second.catch_up()
    second.runner._start_due()
    scene.candidates.clear()
    second.read()
    go_on.set()
    scene.replica = second
    await scene.advance(60.0)
    assert [drain.state for drain in scene.stored()] == [ActionState.SUCCEEDED]


async def test_slow_dry_runs_delay_a_set_and_do_not_keep_it(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    replica = scene.replica
    evict = replica.evict

    async def slow(pod: NodePod, *, is_dry_run: bool) -> Eviction:
        scene.now += 2.0 if is_dry_run else 0.0
        return await evict(pod, is_dry_run=is_dry_run)

    monkeypatch.setattr(replica, "evict", slow)
    await scene.advance(60.0)
    assert scene.evicted_names == GANG_NAMES


async def test_a_drain_that_fails_internally_is_tried_again_after_a_while(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene()

    async def faulty(_: str) -> tuple[NodePod, ...]:
        raise ValueError("a pod without a name")

    monkeypatch.setattr(scene.replica, "node_pods", faulty)
    async with in_background(scene.replica.runner.run()):
        await until_async(lambda: "internal error" in caplog.text)
        for _ in range(100):
            scene.replica.runner.wake()
            await asyncio.sleep(0.001)
    assert caplog.text.count("internal error") == 1


async def test_a_record_that_cannot_be_stored_keeps_no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    world = PodCluster()
    replica = started(world, OTHER, NODE)
    reserve = replica.action_store.reserve

    async def refusing(action: NodeAction) -> None:
        if action.node == OTHER:
            raise ActionStoreError("its labels are refused by a policy")
        await reserve(action)

    monkeypatch.setattr(replica.action_store, "reserve", refusing)
    await carry_on(world, replica, 120)
    assert [(drain.node, drain.state) for drain in world.stored()] == [(NODE, ActionState.SUCCEEDED)]
    [report] = replica.runner.reports()
    assert (report.node, report.state) == (OTHER, DrainState.WAITS)
    assert report.reason == "its NodeAction is not recorded: see the log of the aggregator"


def test_a_drain_without_its_fault_shows_what_it_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    Evictions(
        scene,
        monkeypatch,
        lambda pod: Eviction(EvictionState.REFUSED, "budget") if pod.key.name == "gang-3" else None,
    )
    scene.play(30.0)
    scene.candidates.clear()
    scene.play(5.0)
    assert scene.reason == "team-a/gang-3: budget"
