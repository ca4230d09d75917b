from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from nodeguard.fleet.act.drain_candidates import DrainCandidate
from nodeguard.fleet.act.drain_progress import (
    DrainStep,
    drain_action,
    next_step,
    requested_drains,
    stored_drain,
)
from nodeguard.fleet.act.progress import ActionOutcome, progress
from nodeguard.model.action import ActionState, NodeAction
from nodeguard.model.pod import NodePod, PodKey

NOW = 1_700_000_000.0
GPU = "gpu/0000:1b:00"
CANDIDATE = DrainCandidate("uid-1", "gpu-1", GPU, NOW - 60.0, ("gpu-lost",), ("GPU-1",))


def pod(number: int, **changed: Any) -> NodePod:
    key = PodKey("team-a", f"train-{number}", f"pod-{number}")
    return replace(NodePod(key, "7", gpu_ids=("GPU-1",), controller="Job"), **changed)


PODS = (pod(0), pod(1), pod(2))
RESERVED = drain_action(CANDIDATE, PODS, NOW)
RUNNING = replace(RESERVED, state=ActionState.RUNNING)
BEGUN = replace(RUNNING, begun_at=int(NOW))


def age_at(now: float) -> Callable[[float], float]:
    return lambda at: now - at


def step(
    pods: tuple[NodePod, ...], problems: Mapping[str, str] | None = None, now: float = NOW + 10.0
) -> DrainStep:
    by_uid = {item.key.uid: item for item in pods}
    return next_step(BEGUN, by_uid, problems or {}, 60.0, age_at(now))


def requested(
    *actions: NodeAction,
    candidates: Collection[DrainCandidate] = (CANDIDATE,),
    has_begun: Collection[str] = (),
    refused: Collection[str] = (),
) -> list[NodeAction]:
    return requested_drains(actions, candidates, (), has_begun=has_begun, refused=refused)


def test_the_action_names_the_pods_and_the_quarantine() -> None:
    assert RESERVED.pods == tuple(item.key for item in PODS)
    assert RESERVED.request == "quarantine of GPU 0000:1b:00 since 2023-11-14T22:12:20Z"
    assert RESERVED.key == drain_action(CANDIDATE, PODS, NOW + 5.0).key


def test_each_pod_that_does_not_end_is_evicted() -> None:
    found = step((PODS[0], pod(1, is_terminating=True)))
    assert [item.key.name for item in found.evict] == ["train-0"]
    assert found.outcome is None


def test_it_ends_when_all_pods_are_gone() -> None:
    assert step(()).outcome == ActionOutcome(ActionState.SUCCEEDED, 3, "3 pods evicted from gpu-1")


def test_another_pod_of_the_node_is_never_evicted() -> None:
    found = step((pod(7), PODS[2]))
    assert [item.key.name for item in found.evict] == ["train-2"]


def test_past_its_time_it_fails_and_says_what_is_left() -> None:
    outcome = step((PODS[2],), {"pod-2": "PodDisruptionBudget team-a/b allows 0"}, NOW + 60.0).outcome
    assert outcome == ActionOutcome(
        ActionState.FAILED,
        2,
        "2 of 3 pods left within 1m; team-a/train-2: PodDisruptionBudget team-a/b allows 0: decide whether "
        "to delete the rest by hand",
    )


@pytest.mark.parametrize("state", [ActionState.RESERVED, ActionState.RUNNING])
def test_a_drain_without_its_candidate_is_withdrawn_unless_a_pod_was_evicted(state: ActionState) -> None:
    action = replace(RESERVED, state=state)
    assert requested(action, candidates=()) == []
    assert requested(action, candidates=(), has_begun={action.key}) == [action]


def test_a_blocked_or_refused_drain_is_withdrawn_unless_a_pod_was_evicted() -> None:
    blocked = replace(CANDIDATE, blocker="paused")
    assert requested(RUNNING, candidates=(blocked,)) == []
    assert requested(RUNNING, refused={RUNNING.key}) == []
    assert requested(BEGUN, candidates=(blocked,), has_begun={BEGUN.key}) == [BEGUN]


def test_a_finished_drain_is_not_repeated_while_its_candidate_is_there() -> None:
    failed = replace(BEGUN, state=ActionState.FAILED, changed_at=int(NOW))
    blocked = replace(CANDIDATE, blocker="paused")
    assert requested(failed, candidates=(blocked,)) == [failed]
    assert stored_drain(CANDIDATE, [failed]) == failed
    days_later = NOW + 10 * 86_400.0
    due = progress([failed], [failed], (), {}, lambda _: True, days_later, age_at(days_later))
    assert (due.reserve, due.delete) == ((), ())


def test_a_withdrawn_drain_counts_for_nothing() -> None:
    withdrawn = replace(RUNNING, state=ActionState.CANCELLED)
    assert requested(withdrawn) == []
    assert stored_drain(CANDIDATE, [withdrawn]) is None


def test_the_begin_is_recorded_once() -> None:
    begins = {RUNNING.key: ActionOutcome(ActionState.RUNNING)}
    due = progress([RUNNING], [RUNNING], (), begins, lambda _: True, NOW, age_at(NOW))
    assert due.advance == ((RUNNING, BEGUN),)
    again = progress([BEGUN], [BEGUN], (), begins, lambda _: True, NOW + 3.0, age_at(NOW + 3.0))
    assert again.advance == ()


def test_the_drain_of_a_deleted_node_ends() -> None:
    outcomes = {BEGUN.key: ActionOutcome(ActionState.RUNNING)}
    due = progress([BEGUN], [BEGUN], (), outcomes, lambda _: False, NOW, age_at(NOW))
    [(_, after)] = due.advance
    assert (after.state, after.message) == (ActionState.SUPERSEDED, "the Node is deleted")


def test_a_withdrawal_says_that_no_pod_was_evicted() -> None:
    due = progress([RUNNING], [], (), {}, lambda _: True, NOW, age_at(NOW))
    [(_, after)] = due.advance
    assert after.state == ActionState.CANCELLED
    assert after.message == "no pod was evicted: the fault ended, or its pods may not leave now"
