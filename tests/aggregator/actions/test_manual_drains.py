"""Drains that an operator requested, by nodeguard.aggregator.actions: the policy only observes, and has no rule."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from msgspec.structs import replace

from nodeguard.fleet.act.drain_limits import drain_usage
from nodeguard.fleet.act.drain_progress import drain_action, manual_drains
from nodeguard.model.action import ActionState
from nodeguard.model.drain import DrainMode
from tests.aggregator.actions.drain_replicas import GANG, NODE, OTHER, DrainReplica, candidate
from tests.aggregator.actions.drain_scene import GANG_NAMES, Scene
from tests.aggregator.actions.gang_scene import TRAIN
from tests.aggregator.actions.replicas import KilledError

FAULTS = ("killed before", "killed after", "lost request", "lost response")


class Request(Scene):
    """A scene in which alice requests the drain of a node with the pods of its gang. The policy has no rule, so
    that the only candidates are those of unfinished requests.
    """

    def __init__(self, minimum: int = 0) -> None:
        super().__init__(minimum)
        self.mode = DrainMode.OBSERVE
        pods = [pod for node, pod in self.pods.values() if node == NODE and pod.gpu_ids == ("GPU-0",)]
        self.action = drain_action(self.candidates[NODE], pods, self.now, requested_by="alice")
        asyncio.run(self.replica.action_store.reserve(self.action))

    async def advance(self, seconds: float) -> None:
        await super().advance(seconds)
        if (NODE, self.action.request) not in manual_drains(self.stored()):
            self.candidates.pop(NODE, None)


def test_a_requested_drain_evicts_its_pods_though_the_policy_only_observes() -> None:
    scene = Request()
    scene.play(40.0)
    assert scene.evicted_names == GANG_NAMES
    assert (scene.drain.state, scene.drain.requested_by) == (ActionState.SUCCEEDED, "alice")
    assert len(scene.stored()) == 1


@pytest.mark.parametrize("has_own", [True, False])
@pytest.mark.parametrize("killed_at", [0.0, 1.5, 3.0, 12.0])
def test_requests_of_two_gpus_that_share_a_gang_both_end_as_done(has_own: bool, killed_at: float) -> None:
    """has_own: whether each has another pod, too. killed_at: when another leader takes over; 0 for never."""
    scene = Scene()
    scene.mode = DrainMode.OBSERVE
    scene.candidates.clear()
    scene.pods.clear()
    scene.whole = {TRAIN}
    for node, gpu in ((NODE, "GPU-0"), (NODE, "GPU-1"), (OTHER, "GPU-0")):
        scene.create(node, f"rank-{node}-{gpu}", gpu, GANG, group=TRAIN)
    faults = {"GPU-0": "gpu/0000:1b:00", "GPU-1": "gpu/0000:3b:00"}
    for gpu, resource in faults.items():
        if has_own:
            scene.create(NODE, f"own-{gpu}", gpu, {})
        fault = replace(candidate(NODE, scene.now), resource=resource, gpu_ids=(gpu,))
        scene.candidates[gpu] = fault
        pods = [pod for _, pod in scene.pods.values() if pod.group or pod.key.name == f"own-{gpu}"]
        action = drain_action(fault, pods, scene.now, (TRAIN,), "alice")
        asyncio.run(scene.replica.action_store.reserve(action))
    scene.sync()
    everything = len(scene.pods)
    if killed_at:
        scene.play(killed_at)
        scene.lead()
    scene.play(120.0)
    assert [(action.state, action.message) for action in scene.stored() if not action.begun_at] == []
    assert {action.state for action in scene.stored()} == {ActionState.SUCCEEDED}
    assert (len(scene.stored()), len(scene.evicted), scene.pods) == (2, everything, {})


def test_a_request_with_a_pod_that_holds_other_hardware_now_is_cancelled() -> None:
    """It still runs, so that the set is another one than the operator has seen."""
    scene = Request()
    scene.change(scene.action.pods[0].uid, gpu_ids=("GPU-1",))
    scene.play(20.0)
    assert (scene.drain.state, scene.evicted) == (ActionState.CANCELLED, {})
    assert scene.drain.message == "no pod was evicted: its pods have changed"


def test_a_request_that_something_forbids_ends_without_an_eviction() -> None:
    scene = Request()
    scene.candidates[NODE] = replace(scene.candidates[NODE], blocker="a hold")
    scene.play(5.0)
    assert (scene.drain.state, scene.evicted) == (ActionState.CANCELLED, {})
    assert scene.drain.message == "no pod was evicted: a hold"


def test_a_request_with_a_budget_that_changed_meanwhile_ends_without_an_eviction() -> None:
    scene = Request(minimum=2)
    scene.play(5.0)
    assert (scene.drain.state, scene.evicted) == (ActionState.CANCELLED, {})
    reason = "PodDisruptionBudget team-a/gang allows 2 of 4 evictions now"
    assert scene.drain.message == f"no pod was evicted: {reason}"
    assert len(scene.stored()) == 1


def test_a_request_that_was_recorded_twice_evicts_its_pods_for_one_record() -> None:
    """As by a leader that had not read the first record."""
    scene = Request()
    asyncio.run(scene.replica.action_store.reserve(replace(scene.action, attempt=2)))
    scene.play(40.0)
    assert scene.evicted_names == GANG_NAMES
    first, second = sorted(scene.stored(), key=lambda action: action.attempt)
    assert (first.state, len(first.pods)) == (ActionState.SUCCEEDED, 4)
    assert (second.state, second.begun_at) == (ActionState.CANCELLED, 0)


def test_a_request_waits_for_a_drain_that_has_begun_and_may_use_the_same_budget() -> None:
    scene = Request()
    [uid] = [uid for uid, (node, _) in scene.pods.items() if node == OTHER]
    scene.change(uid, labels=GANG)
    scene.candidates[OTHER] = candidate(OTHER, scene.now)
    other = drain_action(scene.candidates[OTHER], [scene.pods[uid][1]], scene.now, requested_by="bob")
    store = scene.replica.action_store
    asyncio.run(store.reserve(other))
    begun = replace(other, state=ActionState.RUNNING, begun_at=int(scene.now))
    asyncio.run(store.advance(other, begun))
    scene.play(60.0)
    assert {action.state for action in scene.stored()} == {ActionState.SUCCEEDED}
    times = [scene.evicted.pop(uid), *scene.evicted.values()]
    assert len(times) == 5
    assert times[0] < min(times[1:])


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("after", range(0, 14, 2))
def test_a_fault_at_any_request_leaves_the_set_whole_or_reported(fault: str, after: int) -> None:
    scene = Request()
    scene.replica.fault = (after, fault)
    with suppress(KilledError):
        scene.play(10.0)
    scene.lead()
    scene.play(60.0)
    assert scene.evicted_names in ([], GANG_NAMES)
    assert scene.drain.state == (ActionState.SUCCEEDED if scene.evicted else ActionState.CANCELLED)


def test_a_request_uses_no_drain_of_the_hourly_limit() -> None:
    scene = Request()
    running = replace(scene.action, state=ActionState.RUNNING, begun_at=int(scene.now))
    usage = drain_usage([running], lambda _: 0.0)
    assert ([use.uid for use in usage.running], usage.recent) == ([NODE], ())
    assert len(drain_usage([replace(running, requested_by="")], lambda _: 0.0).recent) == 1


def test_a_late_request_begins_no_drain() -> None:
    scene = Request()
    scene.now += 700.0
    scene.replica = DrainReplica(scene)
    scene.replica.is_leader = True
    scene.play(10.0)
    assert (scene.drain.state, scene.evicted) == (ActionState.CANCELLED, {})
    assert scene.drain.message == "no pod was evicted: the request is older than 10m: repeat it"


@pytest.mark.parametrize("is_known", [False, True])
def test_a_request_with_a_fault_that_ends_is_withdrawn(is_known: bool) -> None:
    """is_known: whether the runner has looked at it before."""
    scene = Request()
    if is_known:
        asyncio.run(scene.replica.runner.turn())
    scene.candidates.clear()
    scene.play(5.0)
    assert (scene.drain.state, scene.evicted) == (ActionState.CANCELLED, {})
    assert (
        scene.drain.message
        == "no pod was evicted: no present report has the fault, or the policy does not drain it"
    )
