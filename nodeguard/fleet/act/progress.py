"""The progress of actions: which to reserve, start, advance and delete, from what is stored. Pure.

An action is reserved in the store before anything is started, and started only from the stored state
`Running`. So any process may be killed at any time: its successor computes the same from the store.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from math import inf

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.fleet.state.wall_clock import RecordedAge
from nodeguard.model.action import ActionKind, ActionState, NodeAction

# Seconds for which a finished action stays, unless its request lasts longer.
KEEP_FINISHED = 86_400

_WITHDRAWN = "the clear was replaced, or its incident ended"
_DRAIN_WITHDRAWN = "no pod was evicted: no present report has the fault, or the policy does not drain it"


class ActionOutcome(Struct, frozen=True):
    """The end of a running action, or its begin. carried_out, remaining: as in NodeAction. state: Succeeded,
    Failed or Unknown; Superseded for a notice; Running for a drain that is about to evict its first pod, and
    for a notice that all its pods have; Cancelled for a drain that is no longer requested, with the reason.
    is_taken_over: of a running drain, after its time: a leader that took it over has tried to evict what was
    left.
    """

    state: ActionState
    carried_out: int = 0
    message: str = ""
    remaining: tuple[str, ...] = ()
    is_taken_over: bool = False


class ActionProgress(Struct, frozen=True):
    """What to do with actions."""

    reserve: tuple[NodeAction, ...] = ()
    """To create in the store."""

    start: tuple[NodeAction, ...] = ()
    """Stored as running: to be started, unless they are already."""

    advance: tuple[tuple[NodeAction, NodeAction], ...] = ()
    """As stored, and as they go on."""

    delete: tuple[NodeAction, ...] = ()

    next_change: float = inf
    """When more may change without a new input, in seconds since the epoch."""


def progress(
    actions: Collection[NodeAction],
    requested: Collection[NodeAction],
    ended: Collection[tuple[str, str]],
    outcomes: Mapping[str, ActionOutcome],
    has_node: Callable[[str], bool],
    now: float,
    age: RecordedAge,
) -> ActionProgress:
    """Return what to do. actions: all that are stored. requested: a first attempt for each present request.
    ended: incidents that ended, with the request that each had: what runs for it goes on, as its answer may
    follow, and nothing begins. outcomes: of running actions, by key. has_node: whether a Node exists.
    now: seconds since the epoch. age: of a recorded time, whatever the clock did since.
    """
    requests = {_request(action) for action in requested}
    records = drain_records(actions)
    advance = []
    for action in actions:
        if not action.state.is_finished:
            is_ending = action.state == ActionState.RUNNING and (action.incident, action.request) in ended
            # A detach is requested once, and nothing withdraws it.
            is_requested = action.kind == ActionKind.DETACH_GPUS or is_ending or _request(action) in requests
            no_longer = "" if is_requested else _withdrawal(action, outcomes.get(action.key))
            if action.kind == ActionKind.DRAIN and not action.begun_at:
                no_longer = _second_record(action, records) or no_longer
            # The pods of a gang on other nodes are left.
            is_gang_leaving = bool(action.begun_at and action.pod_groups) and not no_longer
            is_deleted = not (is_gang_leaving or has_node(action.uid))
            no_longer = "the Node is deleted" if is_deleted else no_longer
            after = _next_state(action, outcomes.get(action.key), no_longer, now, age)
            if no_longer and not is_deleted:
                # The begin of a drain was recorded for a first eviction that was refused.
                after = replace(after, begun_at=0)
            if after != action:
                advance.append((action, after))
    # An answer keeps its request from being carried out again.
    expiring = [action for action in actions if _expires(action, requests)]
    expired = tuple(action for action in expiring if age(action.ended_at) >= KEEP_FINISHED)
    return ActionProgress(
        # An open incident may outlive its Node for a while.
        reserve=tuple(_unreserved(actions, expired, [item for item in requested if has_node(item.uid)])),
        start=tuple(action for action in actions if action.state == ActionState.RUNNING),
        advance=tuple(advance),
        delete=expired,
        next_change=min(_next_changes(actions, expiring, now, age), default=inf),
    )


def drain_records(actions: Iterable[NodeAction]) -> dict[tuple[str, str], NodeAction]:
    """Return the drains that are not closed, by the uid of the Node and the request.

    A leader that had not read the first record of a drain may have written a second one. Only one of them is
    carried out, and returned: the one that may have evicted pods, then the first attempt.
    """

    def precedence(drain: NodeAction) -> tuple[bool, bool, int]:
        return bool(drain.begun_at and not drain.state.is_finished), drain.state.is_finished, -drain.attempt

    drains = [action for action in actions if action.kind == ActionKind.DRAIN and not action.is_closed]
    return {(drain.uid, drain.request): drain for drain in sorted(drains, key=precedence)}


def _second_record(drain: NodeAction, records: Mapping[tuple[str, str], NodeAction]) -> str:
    """Return that another record of a drain is carried out; empty if this one is. records: of all drains."""
    record = records[drain.uid, drain.request]
    if record.key == drain.key:
        return ""
    return f"no pod was evicted: this drain was recorded twice, see {record.key}"


def _expires(action: NodeAction, requests: Collection[tuple[str, ...]]) -> bool:
    return action.is_closed or (action.state.is_finished and _request(action) not in requests)


def _unreserved(
    actions: Collection[NodeAction], expired: Collection[NodeAction], requested: Collection[NodeAction]
) -> Iterator[NodeAction]:
    """Yield the next attempt of each request without one that waits or was answered.

    expired: of the actions; another process may have deleted these already, and counts without them.
    """
    attempts: dict[tuple[str, ...], list[NodeAction]] = {}
    for action in actions:
        if action not in expired:
            attempts.setdefault(_request(action), []).append(action)
    names = {action.key for action in actions}
    for request in requested:
        earlier = attempts.get(_request(request), [])
        if all(action.is_closed for action in earlier):
            last = max((action.attempt for action in earlier), default=0)
            attempt = replace(request, attempt=last + 1)
            # An expired action of this name is deleted first.
            if attempt.key not in names:
                yield attempt


def _next_state(
    action: NodeAction, outcome: ActionOutcome | None, no_longer: str, now: float, age: RecordedAge
) -> NodeAction:
    """Return an action that is not finished as it goes on. no_longer: why it is not wanted, else empty."""
    is_running = action.state == ActionState.RUNNING
    if outcome is not None and outcome.state == ActionState.CANCELLED:
        outcome = None
    if outcome is not None and is_running and outcome.state != ActionState.RUNNING:
        after = _changed(action, outcome.state, outcome.message, now, outcome.carried_out)
        return replace(after, remaining=outcome.remaining)
    if no_longer:
        return _withdrawn(action, no_longer, now)
    if action.deadline and action.kind.is_for_agent and age(action.created_at) >= _most_age(action):
        message = "the agent did not answer in time"
        return _changed(action, ActionState.UNKNOWN if is_running else ActionState.FAILED, message, now)
    if not is_running:
        return _changed(action, ActionState.RUNNING, "", now)
    if outcome is not None and not action.begun_at:
        return replace(action, begun_at=int(now))
    if outcome is not None and outcome.is_taken_over and not action.taken_over_at:
        return replace(action, taken_over_at=int(now))
    return action


def _withdrawal(action: NodeAction, outcome: ActionOutcome | None) -> str:
    """Return why an action is withdrawn that is not requested any more."""
    if outcome is not None and outcome.state.is_withdrawn:
        return outcome.message
    return _DRAIN_WITHDRAWN if action.kind == ActionKind.DRAIN else _WITHDRAWN


def _withdrawn(action: NodeAction, reason: str, now: float) -> NodeAction:
    if action.kind == ActionKind.DRAIN:
        state = ActionState.SUPERSEDED if action.begun_at else ActionState.CANCELLED
        return _changed(action, state, reason, now)
    if action.state == ActionState.RESERVED:
        return _changed(action, ActionState.CANCELLED, f"{reason} before the agent was asked", now)
    return _changed(action, ActionState.SUPERSEDED, f"{reason} before the agent answered", now)


def _changed(
    action: NodeAction, state: ActionState, message: str, now: float, carried_out: int = 0
) -> NodeAction:
    return replace(action, state=state, message=message, changed_at=int(now), carried_out=carried_out)


def _most_age(action: NodeAction) -> int:
    """Return for how many seconds an action with a deadline waits for an answer."""
    return action.deadline - action.created_at


def _next_changes(
    actions: Collection[NodeAction], expiring: Collection[NodeAction], now: float, age: RecordedAge
) -> Iterator[float]:
    waits = [
        _most_age(action) - age(action.created_at)
        for action in actions
        if action.deadline and not action.state.is_finished
    ]
    waits += [KEEP_FINISHED - age(action.ended_at) for action in expiring]
    return (now + wait for wait in waits if wait > 0.0)


def _request(action: NodeAction) -> tuple[str, ...]:
    """Return the identity of a request: all attempts of it have the same one."""
    return action.kind, action.uid, action.incident, action.request, f"{action.occurrence}"
