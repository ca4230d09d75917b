"""Drains in virtual time, from the candidate to the last eviction."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from nodeguard.aggregator.actions.drain_queue import DrainFleet
from nodeguard.aggregator.actions.drains import DrainRunner
from nodeguard.fleet.act.drain_candidates import DrainCandidate
from nodeguard.fleet.act.drain_progress import drain_action
from nodeguard.fleet.act.drain_report import DrainState
from nodeguard.model.action import ActionState
from nodeguard.model.drain import DrainMode, DrainPolicy
from nodeguard.model.eviction import Eviction
from nodeguard.model.instant import Instant
from nodeguard.model.job import JobRetries
from nodeguard.model.pod import NodePod
from tests.aggregator.actions.drain_replicas import (
    NODE,
    OTHER,
    DrainReplica,
    PodCluster,
    candidate,
)
from tests.aggregator.actions.drain_scene import GANG_NAMES, Scene
from tests.waiting import in_background, until_async


def test_all_holders_of_the_faulty_gpu_leave_and_no_other_pod() -> None:
    scene = Scene()
    scene.play(5.0)
    assert scene.evicted_names == GANG_NAMES
    assert scene.drain.state == ActionState.RUNNING
    [report] = scene.replica.runner.reports()
    assert (report.state, len(report.pods), report.left) == (DrainState.RUNNING, 4, 4)
    scene.play(30.0)
    assert (scene.drain.state, scene.drain.carried_out) == (ActionState.SUCCEEDED, 4)
    assert scene.drain.message == f"4 pods evicted from {NODE}"
    assert scene.replica.runner.reports() == ()


def whole_node(scene: Scene) -> list[tuple[int | None, bool]]:
    """Let the fault be one of the node, with no pod but the gang. Returns what the Node shows, each state once."""
    scene.pods = {uid: place for uid, place in scene.pods.items() if place[1].key.name in GANG_NAMES}
    scene.candidates[NODE] = replace(scene.candidates[NODE], resource="node", gpu_ids=())
    states = list[tuple[int | None, bool]]()
    for _ in range(80):
        scene.play(0.5)
        states += [(shown.left, shown.is_done) for shown in scene.shown]
    return list(dict.fromkeys(states))


def test_a_node_shows_how_many_pods_of_its_drain_are_left() -> None:
    scene = Scene()
    states = whole_node(scene)
    assert [left for left, is_done in states if not is_done and left is not None] == [4]
    assert states[-1][1]
    scene.lead()
    scene.play(5.0)
    assert [shown.is_done for shown in scene.shown] == [True]
    scene.candidates.clear()
    scene.quarantined.clear()
    scene.play(5.0)
    assert scene.shown == ()


def test_a_node_with_other_gpus_at_work_does_not_count_as_drained() -> None:
    scene = Scene()
    for _ in range(60):
        scene.play(0.5)
        assert scene.shown == ()
    assert scene.drain.state == ActionState.SUCCEEDED


def test_the_report_of_a_running_drain_has_what_each_job_waits_for() -> None:
    scene = Scene()
    for uid, (node, pod) in list(scene.pods.items()):
        scene.pods[uid] = node, replace(pod, key=replace(pod.key, job=f"team-a/{pod.key.name}"))
    scene.play(4.0)
    [report] = scene.replica.runner.reports()
    reasons = {f"team-a/{name}": f"team-a/{name} is still ending" for name in GANG_NAMES}
    assert dict(report.job_reasons) == reasons


def test_a_budget_that_allows_a_part_keeps_all() -> None:
    scene = Scene(minimum=1)
    scene.play(120.0)
    assert not scene.evicted
    assert not scene.stored()
    assert scene.reason == "PodDisruptionBudget team-a/gang allows 3 of 4 evictions now"


def test_a_set_that_waited_leaves_once_its_budget_allows_it() -> None:
    scene = Scene(minimum=4)
    scene.play(30.0)
    scene.minimum = 0
    scene.play(100.0)
    assert scene.evicted_names == GANG_NAMES


def test_observe_reports_the_set_and_evicts_nothing() -> None:
    scene = Scene()
    scene.mode = DrainMode.OBSERVE
    scene.play(60.0)
    assert not scene.evicted
    assert not scene.stored()
    [report] = scene.replica.runner.reports()
    assert report.state == DrainState.WOULD_DRAIN
    assert [pod.name for pod in report.pods] == GANG_NAMES


def test_what_was_only_observed_leaves_at_once_when_the_policy_enforces() -> None:
    scene = Scene()
    scene.mode = DrainMode.OBSERVE
    scene.play(3_000.0)
    scene.mode = DrainMode.ENFORCE
    scene.play(2.0)
    assert scene.evicted_names == GANG_NAMES


def test_observe_reports_the_jobs_that_the_evictions_would_end() -> None:
    scene = Scene()
    scene.mode = DrainMode.OBSERVE
    scene.jobs["team-a", "gang"] = JobRetries("team-a", "gang", failed=0, limit=3)
    for uid, (node, pod) in list(scene.pods.items()):
        scene.pods[uid] = node, replace(pod, controller="Job", batch_job="gang")
    scene.play(10.0)
    [report] = scene.replica.runner.reports()
    assert report.state == DrainState.WOULD_DRAIN
    assert report.costs == ("Job team-a/gang would fail: 4 failed pods with the evictions, backoffLimit 3",)
    scene.minimum = 4
    scene.play(700.0)
    [report] = scene.replica.runner.reports()
    assert (report.state, report.costs) == (DrainState.WAITS, ())


def test_a_first_eviction_that_is_refused_withdraws_the_drain_and_a_later_attempt_drains(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The budget is used up between the check of the set and its first eviction."""
    scene = Scene()
    evict, used = scene.evict, list[NodePod]()

    def refusing(pod: NodePod, *, is_dry_run: bool) -> Eviction:
        if not is_dry_run and not used:
            used.append(pod)
            scene.allowed = 0
        return evict(pod, is_dry_run=is_dry_run)

    monkeypatch.setattr(scene, "evict", refusing)
    scene.play(2.0)
    assert not scene.evicted
    assert (scene.stored()[0].state, scene.stored()[0].begun_at) == (ActionState.SUPERSEDED, 0)
    message = "no pod was evicted: pod team-a/gang-0: the disruption budget gang does not allow it"
    assert scene.stored()[0].message == message
    scene.play(100.0)
    assert scene.evicted_names == GANG_NAMES
    assert scene.drain.attempt == 2


def test_a_pod_replaced_between_list_and_eviction_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene()
    del scene.candidates[NODE]
    scene.candidates[OTHER] = candidate(OTHER, scene.now)
    evict, replaced = scene.evict, list[str]()

    def replacing(pod: NodePod, *, is_dry_run: bool) -> Eviction:
        if not is_dry_run and not replaced:
            [uid] = [uid for uid, (node, _) in scene.pods.items() if node == OTHER]
            replaced.append(uid)
            del scene.pods[uid]
            scene.create("uid-2", "single", "GPU-9", {})
        return evict(pod, is_dry_run=is_dry_run)

    monkeypatch.setattr(scene, "evict", replacing)
    scene.play(60.0)
    assert replaced
    assert not scene.evicted


@pytest.mark.parametrize("blocker", ["paused", "its failure domain rack/r1 is degraded"])
def test_a_blocked_candidate_waits_and_a_begun_drain_goes_on(blocker: str) -> None:
    scene = Scene()
    present = scene.candidates[NODE]
    scene.candidates[NODE] = replace(present, blocker=blocker)
    scene.play(10.0)
    assert not scene.evicted
    assert scene.reason == blocker
    scene.candidates[NODE] = present
    scene.play(5.0)
    assert len(scene.evicted) == 4
    scene.candidates[NODE] = replace(present, blocker=blocker)
    scene.play(60.0)
    assert scene.drain.state == ActionState.SUCCEEDED


def test_a_policy_that_ceases_to_enforce_before_the_first_eviction_cancels_the_drain() -> None:
    scene = Scene()
    pods = [pod for _, pod in scene.pods.values() if pod.key.name in GANG_NAMES]
    asyncio.run(scene.replica.action_store.reserve(drain_action(scene.candidates[NODE], pods, scene.now)))
    scene.mode = DrainMode.OBSERVE
    scene.play(30.0)
    assert not scene.evicted
    assert (scene.drain.state, scene.drain.message) == (
        ActionState.CANCELLED,
        "no pod was evicted: the policy does not enforce drains now",
    )


def test_a_fault_that_ends_before_the_first_eviction_cancels_the_drain() -> None:
    scene = Scene()
    scene.replica.catch_up()
    asyncio.run(scene.replica.runner.turn())
    asyncio.run(scene.replica.loop_turn())
    scene.replica.catch_up()
    assert not scene.drain.state.is_finished
    scene.candidates.clear()
    scene.play(10.0)
    assert not scene.evicted
    assert scene.drain.state == ActionState.CANCELLED


async def test_a_pod_that_ends_by_itself_begins_no_drain() -> None:
    """Its begin is recorded, then a pod ends and an operator pauses nodeguard before the first eviction."""
    scene = Scene()
    while not scene.stored() or not scene.drain.begun_at:
        scene.replica.catch_up()
        await scene.replica.runner.turn()
        await scene.replica.loop_turn()
    del scene.pods[scene.drain.pods[0].uid]
    scene.candidates[NODE] = replace(scene.candidates[NODE], blocker="paused")
    await scene.advance(30.0)
    assert not scene.evicted
    assert scene.drain.state == ActionState.SUPERSEDED


def test_a_drain_with_a_deleted_record_is_made_again_with_the_pods_of_now() -> None:
    scene = Scene()
    scene.play(60.0)
    assert scene.drain.state == ActionState.SUCCEEDED
    [name] = scene.api.objects
    asyncio.run(scene.replica.action_store.delete(scene.drain))
    assert name not in scene.api.objects
    scene.create(NODE, "late", "GPU-0", {})
    scene.play(100.0)
    assert scene.evicted_names == [*GANG_NAMES, "late"]


def test_a_pod_that_came_after_the_record_joins_the_next_attempt() -> None:
    scene = Scene()
    scene.replica.catch_up()
    asyncio.run(scene.replica.runner.turn())
    asyncio.run(scene.replica.loop_turn())
    scene.create(NODE, "late", "GPU-0", {})
    scene.play(60.0)
    first, second = sorted(scene.stored(), key=lambda action: action.attempt)
    assert (first.state, len(first.pods)) == (ActionState.CANCELLED, 4)
    assert (second.state, len(second.pods)) == (ActionState.SUCCEEDED, 5)


def test_without_the_lease_nothing_is_read_or_reported() -> None:
    scene = Scene()
    scene.replica.is_leader = False
    scene.play(10.0)
    assert scene.replica.runner.reports() == ()
    assert not scene.stored()


def test_pods_that_cannot_be_read_are_the_reason() -> None:
    scene = Scene()
    scene.replica.fault = (0, "lost request")
    scene.play(0.5)
    assert scene.reason == "no response"
    scene.play(30.0)
    assert len(scene.evicted) == 4


async def test_an_internal_error_is_logged_and_the_next_turn_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    turns = list[Instant]()

    def candidates(now: Instant) -> list[DrainCandidate]:
        turns.append(now)
        raise ValueError("a report without a name")

    cluster = DrainReplica(PodCluster())
    runner = DrainRunner(DrainFleet(DrainPolicy, candidates), cluster.action_store, lambda: cluster)
    runner.wake()
    async with in_background(runner.run()):
        await until_async(lambda: turns)
        runner.wake()
        await until_async(lambda: len(turns) > 1)
    assert "internal error in a drain, please report it" in caplog.text
