"""The ends of drains in virtual time: by their time, after a failure, and under another leader."""

from __future__ import annotations

from functools import partial

import pytest

from nodeguard.model.action import ActionState
from nodeguard.model.eviction import Eviction, EvictionState, PodReadError
from nodeguard.model.pod import NodePod
from tests.aggregator.actions.drain_replicas import (
    GANG,
    GRACE,
    LIMIT,
    NODE,
    DrainReplica,
    PodCluster,
    candidate,
)
from tests.aggregator.actions.drain_scene import GANG_NAMES, Scene
from tests.kube import model_api


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
    assert "gang does not allow it: decide whether to delete the rest by hand" in scene.drain.message
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


@pytest.mark.parametrize("is_read", [True, False])
@pytest.mark.parametrize("period", [30.0, 100.0, 140.0])
def test_leaders_that_change_put_the_end_of_a_drain_off_by_two_minutes_at_most(
    failing: Scene, monkeypatch: pytest.MonkeyPatch, period: float, is_read: bool
) -> None:
    """period: seconds between two leaders. is_read: whether the successors can read the pods. Else its end is
    unknown, five minutes later.
    """
    scene = failing
    scene.finish_within = 600.0
    scene.play(5.0)
    begun = scene.drain.begun_at
    if not is_read:
        monkeypatch.setattr(DrainReplica, "node_pods", _unread)
    end = begun + (600.0 if is_read else 900.0)
    lead_until(scene, end + 121.0 + period, period)
    assert scene.drain.state == (ActionState.FAILED if is_read else ActionState.UNKNOWN)
    assert scene.drain.ended_at >= end
    assert [action.key for action in scene.stored()] == [scene.drain.key]
    assert [event.reason for event in scene.events] == ["NodeguardDrainStarted", "NodeguardDrainFailed"]


def lead_until(scene: Scene, end: float, period: float) -> None:
    """Let leaders follow each other until the end of the drain, or a time."""
    while scene.now < end and not scene.drain.state.is_finished:
        scene.lead()
        scene.play(min(period, end - scene.now))


@pytest.mark.parametrize("ahead", [-5.0, 5.0, 3_600.0])
def test_a_leader_with_another_clock_gives_those_after_it_no_more_and_no_less(
    failing: Scene, monkeypatch: pytest.MonkeyPatch, ahead: float
) -> None:
    """ahead: of the wall clock of the leader that takes over after the time, which is over in any case."""
    failing.play(5.0)
    failing.now += 86_400.0
    failing.sync()
    monkeypatch.setattr(failing, "evict", partial(PodCluster.evict, failing))
    failing.ends.clear()
    failing.lead(ahead)
    failing.play(10.0)
    assert failing.drain.taken_over_at
    failing.lead()
    failing.play(GRACE)
    assert (failing.drain.state, failing.evicted_names) == (ActionState.SUCCEEDED, GANG_NAMES)


@pytest.mark.parametrize("period", [30.0, 140.0])
def test_a_definition_of_an_earlier_version_keeps_no_drain_from_its_end(
    failing: Scene, monkeypatch: pytest.MonkeyPatch, period: float
) -> None:
    """It has no place for the time of the takeover: the drain ends under the first leader with two minutes."""
    scene = failing
    scene.play(5.0)
    monkeypatch.setattr(model_api, "_STATUS", model_api._STATUS - {"takenOverAt"})
    lead_until(scene, scene.now + 600.0, period)
    assert not scene.drain.taken_over_at
    assert scene.drain.state == (ActionState.FAILED if period > 120.0 else ActionState.RUNNING)
    scene.lead()
    scene.play(130.0)
    assert scene.drain.state == ActionState.FAILED


def test_a_takeover_that_an_aggregator_of_an_earlier_version_drops_is_recorded_again(failing: Scene) -> None:
    scene = failing
    scene.play(5.0)
    lead_until(scene, scene.now + LIMIT + 30.0, 30.0)
    assert scene.drain.taken_over_at
    [stored] = scene.api.objects.values()
    del stored["status"]["takenOverAt"]
    assert not scene.drain.taken_over_at
    lead_until(scene, scene.now + 160.0, 30.0)
    assert scene.drain.state == ActionState.FAILED


async def _unread(_: DrainReplica, __: str) -> tuple[NodePod, ...]:
    raise PodReadError("no response")


def test_a_leader_that_takes_over_after_the_end_evicts_what_an_earlier_one_left(
    failing: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing.play(5.0)
    failing.now += 86_400.0
    failing.sync()
    monkeypatch.setattr(failing, "evict", partial(PodCluster.evict, failing))
    failing.lead()
    failing.play(60.0)
    assert (failing.drain.state, failing.evicted_names) == (ActionState.SUCCEEDED, GANG_NAMES)
