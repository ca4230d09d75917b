from __future__ import annotations

import asyncio
from functools import partial

import pytest
from msgspec.structs import replace

from nodeguard.aggregator.actions.drain_queue import DrainFleet
from nodeguard.aggregator.actions.drains import DrainRunner
from nodeguard.fleet.act.drain_candidates import DrainCandidate
from nodeguard.fleet.act.drain_report import DrainState
from nodeguard.model.action import ActionState, NodeAction
from nodeguard.model.drain import DrainMode, DrainPolicy
from nodeguard.model.eviction import Eviction, EvictionState
from nodeguard.model.instant import Instant
from nodeguard.model.pod import NodePod
from tests.aggregator.actions.drain_replicas import (
    GANG,
    LIMIT,
    NODE,
    OTHER,
    DrainReplica,
    PodCluster,
    candidate,
)
from tests.waiting import in_background, until_async


class Scene(PodCluster):
    """A cluster with one replica that leads, and a faulty GPU that the four pods of a gang hold."""

    def __init__(self, minimum: int = 0) -> None:
        super().__init__()
        self.minimum = minimum
        self.sync()
        self.candidates[NODE] = candidate(NODE, self.now)
        self.lead()

    def lead(self, ahead: float = 0.0) -> None:
        """Start a new process that leads. ahead: of its wall clock, in seconds."""
        self.replica = DrainReplica(self, ahead=ahead)
        self.replica.is_leader = True

    def play(self, seconds: float) -> None:
        asyncio.run(self.advance(seconds))

    async def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.replica.catch_up()
            await self.replica.runner.turn()
            while await self.replica.loop.turn():
                self.replica.catch_up()
            self.now += 0.5
            self.sync()

    @property
    def drain(self) -> NodeAction:
        """Return the latest attempt."""
        return max(self.stored(), key=lambda action: action.attempt)

    @property
    def evicted_names(self) -> list[str]:
        return sorted(uid.rpartition("-")[0] for uid in self.evicted)

    @property
    def reason(self) -> str:
        [report] = self.replica.runner.reports()
        return report.reason


GANG_NAMES = [f"gang-{number}" for number in range(4)]


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
    assert (scene.stored()[0].state, scene.stored()[0].begun_at) == (ActionState.CANCELLED, 0)
    message = "no pod was evicted: pod team-a/gang-0: the budget does not allow it"
    assert scene.stored()[0].message == message
    scene.play(100.0)
    assert scene.evicted_names == GANG_NAMES
    assert scene.drain.attempt == 2


def test_a_budget_that_changes_half_way_is_retried_until_the_time_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene()
    evict = scene.evict

    def closing(pod: NodePod, *, is_dry_run: bool) -> Eviction:
        response = evict(pod, is_dry_run=is_dry_run)
        if len(scene.evicted) == 2:
            scene.minimum, scene.allowed = 4, 0
        return response

    monkeypatch.setattr(scene, "evict", closing)
    scene.play(60.0)
    assert len(scene.evicted) == 2
    assert scene.drain.state == ActionState.RUNNING
    scene.play(LIMIT)
    assert (scene.drain.state, scene.drain.carried_out) == (ActionState.FAILED, 2)
    assert "the budget does not allow it: decide whether to delete the rest by hand" in scene.drain.message
    scene.play(600.0)
    assert len(scene.stored()) == 1, "a failed drain is not repeated"


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Scene:
    """A drain that will fail, as the eviction of one pod is refused."""
    scene = Scene()
    evict = scene.evict

    def refusing(pod: NodePod, *, is_dry_run: bool) -> Eviction:
        if not is_dry_run and pod.key.name == GANG_NAMES[-1]:
            return Eviction(EvictionState.REFUSED, "not now")
        return evict(pod, is_dry_run=is_dry_run)

    monkeypatch.setattr(scene, "evict", refusing)
    return scene


@pytest.fixture
def failed(failing: Scene, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """A drain that has failed, with pods that may leave since then."""
    failing.play(LIMIT + 30.0)
    assert failing.drain.state == ActionState.FAILED
    monkeypatch.setattr(failing, "evict", partial(PodCluster.evict, failing))
    return failing


def test_a_failed_drain_is_not_repeated_as_its_candidate_is_absent(failed: Scene) -> None:
    present = dict(failed.candidates)
    for absent in (1.0, 86_400.0, 10.0):
        failed.candidates.clear()
        failed.play(5.0)
        failed.now += absent
        failed.play(5.0)
        failed.candidates.update(present)
        failed.play(30.0)
    assert failed.evicted_names == GANG_NAMES[:-1]
    assert len(failed.stored()) == 1


def test_the_next_quarantine_after_a_failed_drain_is_drained(failed: Scene) -> None:
    failed.candidates.clear()
    failed.quarantined.clear()
    failed.play(5.0)
    assert failed.evicted_names == GANG_NAMES[:-1]
    failed.quarantined.add(NODE)
    failed.candidates[NODE] = candidate(NODE, failed.now)
    failed.play(60.0)
    assert failed.evicted_names == GANG_NAMES
    assert (failed.drain.attempt, failed.drain.state) == (2, ActionState.SUCCEEDED)
    assert failed.replica.runner.reports() == ()


async def test_a_leader_that_looked_at_no_drain_so_far_requests_none_of_an_earlier_quarantine(
    failed: Scene,
) -> None:
    failed.candidates.clear()
    failed.quarantined.clear()
    await failed.advance(5.0)
    changes = len(failed.api.history)
    failed.lead()
    await failed.replica.loop_turn()
    assert failed.api.history[changes:] == []
    assert failed.drain.released_at


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
    assert scene.drain.state == ActionState.CANCELLED


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


def test_a_successor_ends_a_drain_that_has_begun() -> None:
    scene = Scene()
    scene.play(5.0)
    scene.candidates.clear()
    scene.lead()
    scene.play(60.0)
    assert scene.drain.state == ActionState.SUCCEEDED
    assert all(pod.labels != GANG for _, pod in scene.pods.values())


@pytest.mark.parametrize("ahead", [-30 * 86_400.0, -3_600.0, 3_600.0, 30 * 86_400.0])
def test_a_successor_with_another_clock_has_the_whole_time_and_no_more(failing: Scene, ahead: float) -> None:
    scene = failing
    scene.play(5.0)
    assert scene.evicted_names == GANG_NAMES[:-1]
    scene.lead(ahead)
    scene.play(LIMIT - 5.0)
    assert not scene.drain.state.is_finished
    scene.play(20.0)
    assert scene.drain.state == ActionState.FAILED


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
