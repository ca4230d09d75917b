from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from nodeguard.fleet.act.drain_candidates import DrainCandidate
from nodeguard.fleet.act.drain_progress import (
    DrainAges,
    DrainStep,
    drain_action,
    has_joined,
    next_step,
    released_drains,
    requested_drains,
    shown_drains,
    stored_drain,
)
from nodeguard.fleet.act.progress import ActionOutcome, ActionProgress, progress
from nodeguard.model.action import ActionState, NodeAction
from nodeguard.model.device import Device
from nodeguard.model.eviction import NodeDrain
from nodeguard.model.instant import Instant
from nodeguard.model.mark import Mark, MarkCause
from nodeguard.model.pod import NodePod, PodGroupKey, PodKey

NOW = 1_700_000_000.0
GPU = "gpu/0000:1b:00"
CANDIDATE = DrainCandidate("uid-1", "gpu-1", GPU, NOW - 60.0, ("gpu-lost",), ("GPU-1",))


def pod(number: int, **changed: Any) -> NodePod:
    key = PodKey("team-a", f"train-{number}", f"pod-{number}")
    return replace(NodePod(key, "7", gpu_ids=("GPU-1",), controller="Job"), **changed)


NODE_MARK: tuple[Device | None, MarkCause] = (
    None,
    MarkCause(Mark.QUARANTINE, "driver-hung", "node", "driver", 0),
)

PODS = (pod(0), pod(1), pod(2))
RESERVED = drain_action(CANDIDATE, PODS, NOW)
RUNNING = replace(RESERVED, state=ActionState.RUNNING)
BEGUN = replace(RUNNING, begun_at=int(NOW))


def age_at(now: float) -> Callable[[float], float]:
    return lambda at: now - at


def step(
    pods: tuple[NodePod, ...], problems: Mapping[str, str] | None = None, running_time: float = 10.0
) -> DrainStep:
    by_uid = {item.key.uid: item for item in pods}
    return next_step(BEGUN, by_uid, problems or {}, running_time, 60.0)


def due(
    *actions: NodeAction,
    requested: Collection[NodeAction] = (),
    outcomes: Mapping[str, ActionOutcome] = {},
    has_node: bool = True,
    now: float = NOW,
) -> ActionProgress:
    return progress(actions, requested, (), outcomes, lambda _: has_node, now, age_at(now))


def released(action: NodeAction, now: float = NOW, *, is_quarantined: bool = False) -> list[NodeAction]:
    """Return what an action becomes as the quarantine of its node is released."""
    return [
        after for _, after in released_drains([action], lambda _: [NODE_MARK] if is_quarantined else [], now)
    ]


def requested(
    *actions: NodeAction,
    candidates: Collection[DrainCandidate] = (CANDIDATE,),
    withdrawing: Collection[str] = (),
) -> list[NodeAction]:
    return requested_drains(actions, candidates, (), withdrawing)


def test_the_action_names_the_pods_and_the_quarantine() -> None:
    assert RESERVED.pods == tuple(item.key for item in PODS)
    assert RESERVED.request == "quarantine of GPU 0000:1b:00"
    assert RESERVED.key == drain_action(CANDIDATE, PODS, NOW + 5.0).key


def test_each_pod_that_does_not_end_is_evicted() -> None:
    found = step((PODS[0], pod(1, is_terminating=True)))
    assert [item.key.name for item in found.evict] == ["train-0"]
    assert found.outcome is None


def test_it_ends_when_all_pods_are_gone() -> None:
    assert step(()).outcome == ActionOutcome(ActionState.SUCCEEDED, 3, "3 pods evicted from gpu-1")


def test_a_pod_with_another_job_than_recorded_is_still_the_recorded_one() -> None:
    """As in the record of an earlier version, which has no jobs."""
    group = PodGroupKey("team-a", "train")
    drain = replace(BEGUN, pod_groups=(group,))
    named = replace(pod(0, group=group), key=replace(PODS[0].key, job="team-a/train"))
    assert not has_joined(drain, [named])
    assert has_joined(drain, [named, pod(7, group=group)])


def test_another_pod_of_the_node_is_never_evicted() -> None:
    found = step((pod(7), PODS[2]))
    assert [item.key.name for item in found.evict] == ["train-2"]


def test_the_pods_of_each_job_wait_for_themselves() -> None:
    first, second = (
        pod(number, is_terminating=number == 1, key=replace(PODS[number].key, job=job))
        for number, job in enumerate(("team-a/train", "team-a/eval"))
    )
    refused = {"pod-0": "PodDisruptionBudget team-a/b allows 0"}
    assert step((first, second), refused).job_reasons == {
        "team-a/train": "team-a/train-0: PodDisruptionBudget team-a/b allows 0",
        "team-a/eval": "team-a/train-1 is still ending",
    }
    assert step((first,), refused).job_reasons == {}


def test_past_its_time_it_fails_and_says_what_is_left() -> None:
    outcome = step((PODS[2],), {"pod-2": "PodDisruptionBudget team-a/b allows 0"}, 60.0).outcome
    assert outcome == ActionOutcome(
        ActionState.FAILED,
        2,
        "2 of 3 pods gone after 1m; team-a/train-2: PodDisruptionBudget team-a/b allows 0: decide whether "
        "to delete the rest by hand",
        ("pod-2",),
    )
    [(_, failed)] = due(BEGUN, requested=[BEGUN], outcomes={BEGUN.key: outcome}).advance
    assert (failed.state, failed.remaining) == (ActionState.FAILED, ("pod-2",))


@pytest.mark.parametrize("state", [ActionState.RESERVED, ActionState.RUNNING])
def test_a_drain_without_its_candidate_is_withdrawn_unless_it_has_begun(state: ActionState) -> None:
    assert requested(replace(RESERVED, state=state), candidates=()) == []
    assert requested(BEGUN, candidates=()) == [BEGUN]


def test_a_blocked_or_refused_drain_is_withdrawn_unless_it_has_begun() -> None:
    blocked = replace(CANDIDATE, blocker="paused")
    assert requested(RUNNING, candidates=(blocked,)) == []
    assert requested(RUNNING, withdrawing={RUNNING.key}) == []
    assert requested(BEGUN, candidates=(blocked,)) == [BEGUN]
    assert requested(BEGUN, withdrawing={BEGUN.key}) == []


HOUR, DAY = 3_600.0, 86_400.0
DAYS_LATER = NOW + 10 * DAY
ENDS = [ActionState.SUCCEEDED, ActionState.FAILED, ActionState.UNKNOWN]


@pytest.mark.parametrize("state", ENDS)
@pytest.mark.parametrize("candidates", [(CANDIDATE,), (replace(CANDIDATE, blocker="paused"),), ()])
def test_a_finished_drain_stays_until_its_quarantine_is_released(
    state: ActionState, candidates: tuple[DrainCandidate, ...]
) -> None:
    """Its candidate may be absent: the agent is late, or the policy changed."""
    finished = replace(BEGUN, state=state, changed_at=int(NOW))
    stays = requested(finished, candidates=candidates)
    assert stays == [finished]
    assert stored_drain(CANDIDATE, [finished]) == finished
    assert due(finished, requested=[*stays, RESERVED], now=DAYS_LATER) == ActionProgress()
    assert released(finished, is_quarantined=True) == []


@pytest.mark.parametrize("state", ENDS)
def test_a_released_quarantine_is_recorded_once_and_the_next_one_is_drained(state: ActionState) -> None:
    finished = replace(BEGUN, state=state, changed_at=int(NOW))
    [closed] = released(finished, NOW + 60.0)
    assert closed == replace(finished, released_at=int(NOW) + 60)
    assert released(closed, NOW + 90.0) == []
    assert requested(closed) == []
    assert stored_drain(CANDIDATE, [closed]) is None
    again = due(closed, requested=[RESERVED], now=NOW + 120.0)
    assert again.reserve == (replace(RESERVED, attempt=2),)
    assert due(closed, now=NOW + 86_399.0).delete == ()
    assert due(closed, now=NOW + 86_400.0).delete == (closed,)


def test_a_quarantine_that_is_released_while_pods_leave_is_not_drained_twice_at_a_time() -> None:
    [running] = released(BEGUN)
    assert due(running, requested=[running, RESERVED]).reserve == ()
    ended = replace(running, state=ActionState.SUCCEEDED, changed_at=int(NOW))
    assert due(ended, requested=[RESERVED]).reserve == (replace(RESERVED, attempt=2),)


def test_the_drain_of_a_deleted_node_stays_for_a_day() -> None:
    failed = replace(BEGUN, state=ActionState.FAILED, changed_at=int(NOW))
    [closed] = released(failed)
    assert due(closed, has_node=False, now=NOW + 86_400.0).delete == (closed,)


@pytest.mark.parametrize("jump", [0.0, -HOUR, HOUR])
def test_a_jump_of_the_clock_changes_no_age(jump: float) -> None:
    ages = DrainAges()
    for seconds, jumped in ((0.0, 0.0), (10.0, 0.0), (20.0, jump), (30.0, jump)):
        now = Instant(NOW + seconds + jumped, seconds, "")
        ages.follow([BEGUN], now)
    assert ages.age(BEGUN, now) == 30.0


def test_the_age_of_a_drain_is_that_of_its_record_or_for_the_future_since_it_was_read() -> None:
    ages = DrainAges()
    early, late = replace(BEGUN, begun_at=int(NOW - HOUR)), replace(BEGUN, begun_at=int(NOW + DAY), attempt=2)
    for seconds in (0.0, 60.0):
        now = Instant(NOW + seconds, seconds, "")
        ages.follow([early, late], now)
    assert ages.age(early, now) == HOUR + 60.0
    assert ages.age(late, now) == 60.0
    assert ages.age(RESERVED, now) == 60.0, "it has not begun"


def test_a_request_with_a_time_of_the_future_ages_too() -> None:
    ages = DrainAges()
    request = replace(RUNNING, created_at=int(NOW + DAY))
    for seconds in (0.0, 700.0):
        now = Instant(NOW + seconds, seconds, "")
        ages.follow([request], now)
    assert ages.age(request, now) == 700.0


def test_a_withdrawn_drain_counts_for_nothing() -> None:
    withdrawn = replace(RUNNING, state=ActionState.CANCELLED)
    assert requested(withdrawn) == []
    assert stored_drain(CANDIDATE, [withdrawn]) is None
    assert released(withdrawn) == []


def test_the_begin_is_recorded_once() -> None:
    begins = {RUNNING.key: ActionOutcome(ActionState.RUNNING)}
    assert due(RUNNING, requested=[RUNNING], outcomes=begins).advance == ((RUNNING, BEGUN),)
    assert due(BEGUN, requested=[BEGUN], outcomes=begins, now=NOW + 3.0).advance == ()


def test_the_drain_of_a_deleted_node_ends() -> None:
    outcomes = {BEGUN.key: ActionOutcome(ActionState.RUNNING)}
    [(_, after)] = due(BEGUN, requested=[BEGUN], outcomes=outcomes, has_node=False).advance
    assert (after.state, after.message) == (ActionState.SUPERSEDED, "the Node is deleted")


def test_the_drain_of_a_gang_goes_on_without_its_node_once_it_has_begun() -> None:
    groups = (PodGroupKey("team-a", "train"),)
    begun, running = replace(BEGUN, pod_groups=groups), replace(RUNNING, pod_groups=groups)
    assert due(begun, requested=[begun], has_node=False).advance == ()
    [(_, withdrawn)] = due(begun, has_node=False).advance
    [(_, not_begun)] = due(running, requested=[running], has_node=False).advance
    assert (withdrawn.state, not_begun.state) == (ActionState.SUPERSEDED, ActionState.CANCELLED)


@pytest.mark.parametrize(
    ("action", "state"), [(RUNNING, ActionState.CANCELLED), (BEGUN, ActionState.SUPERSEDED)]
)
def test_a_withdrawn_drain_has_not_begun_and_its_message_names_no_evicted_pod(
    action: NodeAction, state: ActionState
) -> None:
    [(_, after)] = due(action).advance
    assert (after.state, after.begun_at) == (state, 0)
    assert (
        after.message
        == "no pod was evicted: no present report has the fault, or the policy does not drain it"
    )
    outcomes = {action.key: ActionOutcome(ActionState.CANCELLED, 0, "no pod was evicted: a hold")}
    [(_, after)] = due(action, outcomes=outcomes).advance
    assert (after.state, after.begun_at, after.message) == (
        state,
        0,
        "no pod was evicted: a hold",
    )
    assert due(action, requested=[action], outcomes=outcomes).advance == (), "it is requested"


def test_a_drain_of_a_node_is_shown_with_the_pods_that_are_left() -> None:
    running = replace(drain_action(replace(CANDIDATE, resource="node"), PODS, NOW), **WHOLE)
    done = replace(running, state=ActionState.SUCCEEDED)
    assert shown_drains([running], {}) == [NodeDrain("uid-1", "gpu-1", 3, None, is_done=False)]
    remaining = {running.key: ("pod-0", "pod-2")}
    assert shown_drains([running], remaining) == [NodeDrain("uid-1", "gpu-1", 3, 2, is_done=False)]
    assert shown_drains([done], {}) == [NodeDrain("uid-1", "gpu-1", 3, None, is_done=True)]


WHOLE: dict[str, Any] = {"state": ActionState.RUNNING, "begun_at": int(NOW)}


@pytest.mark.parametrize(
    "changed",
    [
        {"begun_at": 0},
        {"state": ActionState.FAILED},
        {"state": ActionState.UNKNOWN},
        {"state": ActionState.SUPERSEDED},
        {"state": ActionState.SUCCEEDED, "released_at": int(NOW)},
        {"request": RESERVED.request},
    ],
    ids=["not begun", "failed", "unknown", "withdrawn", "released", "of one GPU"],
)
def test_a_drain_that_its_node_does_not_show(changed: Any) -> None:
    action = drain_action(replace(CANDIDATE, resource="node"), PODS, NOW)
    assert shown_drains([replace(action, **WHOLE)], {})
    assert shown_drains([replace(action, **WHOLE | changed)], {}) == []
