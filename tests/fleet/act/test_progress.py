from __future__ import annotations

from math import inf

import pytest
from msgspec.structs import replace

from nodeguard.fleet.act.progress import (
    KEEP_FINISHED,
    ActionOutcome,
    ActionProgress,
    drain_records,
    progress,
)
from nodeguard.model.action import ActionKind, ActionState, FindingKey, NodeAction

CLEAR = NodeAction(
    ActionKind.CLEAR, "node-1", "uid-1", "Ann", 100, incident="i", findings=(FindingKey("gpu-lost", "node"),)
)
DETACH = NodeAction(ActionKind.DETACH_GPUS, "node-1", "uid-1", "Bob", 100, deadline=160, seconds=60)
DRAIN = NodeAction(ActionKind.DRAIN, "node-1", "uid-1", "quarantine of the node", 100)
RUNNING = replace(CLEAR, state=ActionState.RUNNING, changed_at=110)


def due(
    *actions: NodeAction,
    requested: tuple[NodeAction, ...] = (CLEAR,),
    ended: tuple[tuple[str, str], ...] = (),
    outcome: ActionOutcome | None = None,
    has_node: bool = True,
    now: float = 120.0,
) -> ActionProgress:
    outcomes = {action.key: outcome for action in actions} if outcome is not None else {}
    return progress(actions, requested, ended, outcomes, lambda _: has_node, now, lambda at: now - at)


def ended(action: NodeAction, state: ActionState) -> NodeAction:
    return replace(action, state=state, changed_at=110)


def test_a_request_is_reserved_then_started_then_answered() -> None:
    assert due() == ActionProgress(reserve=(CLEAR,))
    running = replace(CLEAR, state=ActionState.RUNNING, changed_at=120)
    assert due(CLEAR) == ActionProgress(advance=((CLEAR, running),)), (
        "it is not started before that is stored"
    )
    assert due(running) == ActionProgress(start=(running,))
    succeeded = replace(running, state=ActionState.SUCCEEDED, carried_out=1, message="done", changed_at=130)
    outcome = ActionOutcome(ActionState.SUCCEEDED, 1, "done")
    assert due(running, outcome=outcome, now=130.0) == ActionProgress((), (running,), ((running, succeeded),))
    assert due(succeeded) == ActionProgress()


@pytest.mark.parametrize("state", [ActionState.SUCCEEDED, ActionState.FAILED, ActionState.UNKNOWN])
def test_an_answered_request_is_not_repeated_as_long_as_it_exists(state: ActionState) -> None:
    action = ended(CLEAR, state)
    for now in (120.0, 110.0 + 10 * KEEP_FINISHED):
        assert due(action, now=now) == ActionProgress()
    assert due(action, requested=(replace(CLEAR, request="Bob"),)).reserve


@pytest.mark.parametrize("state", [ActionState.CANCELLED, ActionState.SUPERSEDED])
def test_a_withdrawn_action_is_tried_again_if_its_request_is_there(state: ActionState) -> None:
    """A watch of requests may be behind that of actions."""
    first = ended(CLEAR, state)
    second = replace(CLEAR, attempt=2)
    assert due(first).reserve == (second,)
    assert second.key != CLEAR.key
    assert due(first, second).reserve == ()
    assert due(first, ended(second, state)).reserve == (replace(CLEAR, attempt=3),)
    assert due(first, ended(second, ActionState.SUCCEEDED)).reserve == ()
    end = 110.0 + KEEP_FINISHED
    assert due(first, now=end) == ActionProgress(delete=(first,)), "then the attempts are counted again"
    assert due(now=end).reserve == (CLEAR,)


@pytest.mark.parametrize(
    ("action", "state"), [(CLEAR, ActionState.CANCELLED), (RUNNING, ActionState.SUPERSEDED)]
)
def test_an_action_without_request_or_node_is_withdrawn(action: NodeAction, state: ActionState) -> None:
    for change in (due(action, requested=()), due(action, has_node=False)):
        [(before, after)] = change.advance
        assert (before, after.state) == (action, state)
        assert after.message
    answered = due(RUNNING, requested=(), outcome=ActionOutcome(ActionState.SUCCEEDED, 1))
    assert answered.advance[0][1].state == ActionState.SUCCEEDED, "its answer is there"


def test_nothing_is_reserved_for_a_deleted_node() -> None:
    """Each attempt would be withdrawn at once, and followed by the next one, without end."""
    assert due(has_node=False) == ActionProgress()
    [(_, cancelled)] = due(CLEAR, has_node=False).advance
    assert due(cancelled, has_node=False).reserve == ()
    assert due(cancelled).reserve == (replace(CLEAR, attempt=2),), "the Node was only read late"


def test_an_action_that_runs_when_its_incident_ends_waits_for_its_answer() -> None:
    """The report without the finding comes before the answer."""
    ended_incident = (("i", "Ann"),)
    assert due(RUNNING, requested=(), ended=ended_incident) == ActionProgress(start=(RUNNING,))
    for action, incidents in ((CLEAR, ended_incident), (RUNNING, (("i", "Bob"),))):
        [(_, after)] = due(action, requested=(), ended=incidents).advance
        assert after.state.is_withdrawn


@pytest.mark.parametrize(
    ("begun", "first"),
    [((0, 0), 0), ((0, 110), 1), ((110, 0), 0)],
    ids=["none has begun", "the second has begun", "the first has begun"],
)
@pytest.mark.parametrize("end", [ActionState.RUNNING, ActionState.FAILED])
def test_of_two_records_of_one_drain_one_is_carried_out(
    begun: tuple[int, int], first: int, end: ActionState
) -> None:
    """A leader that has not read the first record writes a second one."""
    records = [
        replace(DRAIN, attempt=attempt, begun_at=at, state=end if at else ActionState.RUNNING, changed_at=110)
        for attempt, at in enumerate(begun, start=1)
    ]
    [(before, after)] = due(*records, requested=(DRAIN,)).advance
    assert before == records[1 - first]
    assert after.state == ActionState.CANCELLED
    assert after.message == f"no pod was evicted: this drain was recorded twice, see {records[first].key}"
    assert drain_records(records)["uid-1", "quarantine of the node"] == records[first]


def test_a_drain_of_an_earlier_quarantine_is_no_record_of_the_next_one() -> None:
    earlier = replace(DRAIN, state=ActionState.FAILED, begun_at=90, changed_at=100, released_at=105)
    later = replace(DRAIN, state=ActionState.RUNNING, attempt=2)
    assert due(earlier, later, requested=(DRAIN,)).advance == ()


def test_an_action_of_no_incident_needs_no_request_and_has_a_deadline() -> None:
    running = ended(DETACH, ActionState.RUNNING)
    assert due(running, requested=()) == ActionProgress(start=(running,), next_change=160)
    assert due(DETACH, requested=(), now=160.0).advance[0][1].state == ActionState.FAILED
    assert due(running, requested=(), now=160.0).advance[0][1].state == ActionState.UNKNOWN


def test_a_finished_action_is_deleted_after_a_day_without_its_request() -> None:
    done, end = ended(CLEAR, ActionState.SUCCEEDED), 110 + KEEP_FINISHED
    assert due(done, requested=(), now=end - 1.0) == ActionProgress(next_change=end)
    assert due(done, requested=(), now=end) == ActionProgress(delete=(done,), next_change=inf)


def test_the_key_depends_on_the_attempt_and_not_on_its_time() -> None:
    assert replace(CLEAR, created_at=200, node="renamed").key == CLEAR.key == RUNNING.key
    others = (
        {"attempt": 2}, {"request": "Bob"}, {"uid": "uid-2"}, {"incident": "j"}, {"occurrence": 2},
        {"kind": ActionKind.DETACH_GPUS},
    )  # fmt: skip
    assert len({CLEAR.key, *(replace(CLEAR, **change).key for change in others)}) == len(others) + 1
