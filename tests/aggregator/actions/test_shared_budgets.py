"""Drains of two nodes with pods under one disruption budget that allows only one of the sets: one set leaves whole, the
other stays, however the requests, the views and the leaders are timed.
"""

from __future__ import annotations

import asyncio

import pytest

from nodeguard.aggregator.actions import drain_queue
from nodeguard.fleet.act.drain_report import DrainState
from nodeguard.model.action import ActionState
from nodeguard.model.eviction import Eviction, EvictionState
from nodeguard.model.pod import NodePod
from tests.aggregator.actions.drain_replicas import GANG, LIMIT, NODE, OTHER, candidate
from tests.aggregator.actions.drain_scene import Scene
from tests.aggregator.actions.random_drain_history import STEPS, History
from tests.aggregator.actions.test_random_drains import HISTORIES

FIRST = {f"gang-{number}" for number in range(4)}
SECOND = {f"twin-{number}" for number in range(4)}


def share(world: Scene | History) -> None:
    """Let four pods of the other node share the budget, which allows four evictions."""
    for uid in [uid for uid, (node, _) in world.pods.items() if node == OTHER]:
        del world.pods[uid]
    for name in sorted(SECOND):
        world.create(OTHER, name, "GPU-0", GANG)
    world.minimum = 4
    world.sync()


def two_faults(*, minimum: int = 4) -> Scene:
    """Return a leader and a fault of each node, at the same time."""
    scene = Scene()
    share(scene)
    scene.minimum = minimum
    scene.sync()
    scene.candidates = {node: candidate(node, scene.now) for node in (NODE, OTHER)}
    scene.replica.catch_up()
    return scene


def test_one_set_leaves_and_the_other_waits_for_the_budget() -> None:
    scene = two_faults()
    scene.play(10.0)
    assert scene.evicted_names == sorted(FIRST)
    assert [drain.state for drain in scene.stored()] == [ActionState.RUNNING], "the other is not requested"
    scene.play(LIMIT + 60.0)
    assert scene.evicted_names == sorted(FIRST)
    assert [drain.state for drain in scene.stored()] == [ActionState.SUCCEEDED]
    assert scene.reason == "PodDisruptionBudget team-a/gang allows 0 of 4 evictions now"


def test_a_set_waits_until_all_pods_of_the_other_are_ending(monkeypatch: pytest.MonkeyPatch) -> None:
    """The budget allows both, but the last pod of the first set needs it for longer."""
    scene = two_faults(minimum=0)
    evict, stuck = scene.evict, {"gang-3"}

    def refusing(pod: NodePod, *, is_dry_run: bool) -> Eviction:
        if not is_dry_run and pod.key.name in stuck:
            return Eviction(EvictionState.REFUSED, "the budget does not allow it")
        return evict(pod, is_dry_run=is_dry_run)

    monkeypatch.setattr(scene, "evict", refusing)
    scene.play(20.0)
    assert set(scene.evicted_names) == FIRST - stuck
    [report] = [item for item in scene.replica.runner.reports() if item.state != DrainState.RUNNING]
    assert (report.node, report.state) == (OTHER, DrainState.WAITS)
    assert report.reason == (
        f"the drain of {NODE} is first: a PodDisruptionBudget of namespace team-a may select pods of both"
    )
    stuck.clear()
    scene.play(100.0)
    assert set(scene.evicted_names) == FIRST | SECOND
    assert [drain.state for drain in scene.stored()] == 2 * [ActionState.SUCCEEDED]


def test_sets_without_a_budget_do_not_wait() -> None:
    scene = two_faults(minimum=0)
    for uid, (_, pod) in list(scene.pods.items()):
        if pod.labels == GANG:
            scene.change(uid, labels={"app": "free"})
    scene.replica.catch_up()
    scene.play(5.0)
    assert set(scene.evicted_names) == FIRST | SECOND


@pytest.mark.parametrize("is_begun", [False, True])
@pytest.mark.parametrize("is_watched", [False, True])
def test_of_two_recorded_drains_one_begins(
    monkeypatch: pytest.MonkeyPatch, is_begun: bool, is_watched: bool
) -> None:
    """An earlier version or leader recorded both. is_begun: also their begin. is_watched: before the leader changes."""
    scene = two_faults()
    with monkeypatch.context() as patched:
        patched.setattr(drain_queue, "earlier_drain_reason", lambda *_: "")

        async def record() -> None:
            while not (
                len(scene.stored()) == 2 and all(item.begun_at for item in scene.stored()) >= is_begun
            ):
                scene.replica.catch_up()
                await scene.replica.runner.turn()
                await scene.replica.loop_turn()

        asyncio.run(record())
    assert not scene.evicted
    if is_watched:
        scene.replica.catch_up()
    else:
        scene.lead()
    scene.play(LIMIT + 60.0)
    assert set(scene.evicted_names) in (FIRST, SECOND)
    assert sum(drain.state == ActionState.SUCCEEDED for drain in scene.stored()) == 1
    assert all(drain.state.is_finished for drain in scene.stored())


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_random_histories_of_two_sets(part: int) -> None:
    whole = 0
    for seed in range(2 * part, HISTORIES, 8):
        history = History(seed)
        share(history)

        async def play(history: History = history) -> None:
            for _ in range(STEPS):
                await history.step()
            history.candidates = {node: history.fault(node) for node in (NODE, OTHER)}
            await history.finish()

        try:
            asyncio.run(play())
            left = {uid.rpartition("-")[0] for uid in history.evicted}
            assert not (left & FIRST and left & SECOND), left
            # A drain that has begun may end by its time.
            is_failed = any(action.state == ActionState.FAILED for action in history.stored())
            assert is_failed or left in (FIRST, SECOND), left
            whole += not is_failed
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    assert whole > HISTORIES // 20, "few histories drain a set"
