"""The progress of drains: which are requested, and the next step of one that has begun. Pure.

A drain begins with the record of `begun_at`, before its first eviction. From then on it goes on until all of
its pods are gone or its time is over: a pause, a lost lease or a finding that ends cancels nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.config.amounts import format_duration
from nodeguard.fleet.act.drain_candidates import DrainCandidate, drain_request
from nodeguard.fleet.act.progress import ActionOutcome
from nodeguard.fleet.state.wall_clock import WallClock
from nodeguard.model.action import ActionKind, ActionState, NodeAction
from nodeguard.model.device import Device
from nodeguard.model.eviction import NodeDrain
from nodeguard.model.instant import Instant
from nodeguard.model.mark import MarkCause
from nodeguard.model.pod import NodePod, PodGroupKey
from nodeguard.model.target import NODE

# Pods that a message names.
_NAMED = 3


class DrainAges:
    """How long ago drains began and were taken over, by the clock of this process. Another process recorded
    their times, and its clock may differ.
    """

    def __init__(self) -> None:
        self._clock = WallClock()
        # When this process first read a time of a drain, by key and time, in seconds of the monotonic clock.
        self._seen: dict[tuple[str, int], float] = {}

    def follow(self, drains: Iterable[NodeAction], now: Instant) -> None:
        """Follow the clocks and the stored drains."""
        self._clock.follow(now)
        times = {(drain.key, at) for drain in drains for at in (_began_at(drain), drain.taken_over_at)}
        self._seen = {time: self._seen.get(time, now.mono) for time in times}

    def age(self, drain: NodeAction, now: Instant) -> float:
        """Return the seconds since the begin of a drain, or else since its record. A time of the future is
        that when this process read it first.
        """
        return self._age(drain, _began_at(drain), now)

    def takeover_age(self, drain: NodeAction, now: Instant) -> float:
        """Return the seconds since a drain was taken over after its time; 0 if it was not."""
        return self._age(drain, drain.taken_over_at, now) if drain.taken_over_at else 0.0

    def _age(self, drain: NodeAction, at: int, now: Instant) -> float:
        times = self._clock.mono_times(at, now) or [self._seen.get((drain.key, at), now.mono)]
        return max(0.0, now.mono - max(times))


def _began_at(drain: NodeAction) -> int:
    return drain.begun_at or drain.created_at


class DrainStep(Struct, frozen=True):
    """What a drain that has begun does next. outcome: its end; None while it goes on."""

    evict: tuple[NodePod, ...] = ()
    outcome: ActionOutcome | None = None
    reason: str = ""
    """What it waits for; empty if it waits for nothing but the ends of its pods."""
    job_reasons: Mapping[str, str] = {}
    """What the pods that are left wait for, by job; empty if they are of one job."""
    remaining: tuple[str, ...] = ()
    """Uids of the pods that are not gone yet."""
    seconds_left: float = 0.0
    """Until its time is over."""


def drain_action(
    candidate: DrainCandidate,
    pods: Iterable[NodePod],
    now: float,
    groups: tuple[PodGroupKey, ...] = (),
    requested_by: str = "",
) -> NodeAction:
    """Return the action that evicts some pods for a candidate. now: seconds since the epoch. groups: those of
    which all pods leave. requested_by: the operator; empty for the policy.
    """
    return NodeAction(
        ActionKind.DRAIN,
        candidate.node,
        candidate.uid,
        candidate.request,
        int(now),
        pods=tuple(sorted(pod.key for pod in pods)),
        pod_groups=groups,
        requested_by=requested_by,
    )


def manual_drains(actions: Iterable[NodeAction]) -> set[tuple[str, str]]:
    """Return the drains that operators requested and that are not finished: uid of the Node, and request."""
    return {
        (action.uid, action.request)
        for action in actions
        if action.kind == ActionKind.DRAIN and action.requested_by and not action.state.is_finished
    }


def stored_drain(candidate: DrainCandidate, actions: Iterable[NodeAction]) -> NodeAction | None:
    """Return the latest drain of a candidate; None for none. A closed one does not count."""
    wanted = ActionKind.DRAIN, candidate.uid, candidate.request
    attempts = [
        action
        for action in actions
        if (action.kind, action.uid, action.request) == wanted and not action.is_closed
    ]
    return max(attempts, key=lambda action: action.attempt, default=None)


def requested_drains(
    actions: Iterable[NodeAction],
    candidates: Collection[DrainCandidate],
    assessed: Iterable[NodeAction],
    withdrawing: Collection[str],
) -> list[NodeAction]:
    """Return the requests of drains that stay or begin; see `progress`.

    candidates: the present ones. assessed: new drains that nothing forbids. withdrawing: keys of drains
    without an evicted pod that may not begin any more. A drain that has begun goes on without its candidate.
    A finished one stays requested until its quarantine is released, so that it is not repeated: its candidate
    may be absent, as while the agent does not report.
    """
    present = {(candidate.uid, candidate.request): candidate for candidate in candidates}
    requested = list(assessed)
    for action in actions:
        if action.kind != ActionKind.DRAIN or action.is_closed or action.key in withdrawing:
            continue
        candidate = present.get((action.uid, action.request))
        is_wanted = candidate is not None and not candidate.blocker
        if is_wanted or action.state.is_finished or action.begun_at:
            requested.append(action)
    return requested


def released_drains(
    actions: Iterable[NodeAction],
    marks: Callable[[str], Iterable[tuple[Device | None, MarkCause]]],
    now: float,
) -> Iterator[tuple[NodeAction, NodeAction]]:
    """Yield the drains, begun or finished, with a quarantine that was released since: as stored, and as they
    go on. marks: see FleetState.drain_marks. now: seconds since the epoch.
    """
    for action in actions:
        is_answer = action.state.is_finished or bool(action.begun_at)
        is_open = action.kind == ActionKind.DRAIN and not (action.released_at or action.state.is_withdrawn)
        if is_open and is_answer and not is_quarantined(action, marks(action.uid)):
            yield action, replace(action, released_at=int(now))


def is_quarantined(action: NodeAction, marks: Iterable[tuple[Device | None, MarkCause]]) -> bool:
    """Return whether the quarantine of a drain is still recorded: on the Node or, for a drain of one GPU, on
    this GPU. marks: of its Node, see FleetState.drain_marks.
    """
    return any(device is None or drain_request(cause.target) == action.request for device, cause in marks)


def next_step(
    action: NodeAction,
    pods: Mapping[str, NodePod],
    problems: Mapping[str, str],
    running_time: float,
    finish_within: float,
) -> DrainStep:
    """Return the next step of a drain that has begun. pods: those of the Node and of the recorded PodGroups
    that are not finished, by uid.
    problems: why the latest eviction of a pod failed, by uid. running_time: seconds since it has begun, or
    in the first two minutes of a leader that took it over: since then. finish_within: of the policy.
    """
    remaining = [pods[key.uid] for key in action.pods if key.uid in pods]
    done = len(action.pods) - len(remaining)
    if not remaining:
        groups = ", ".join(map(str, action.pod_groups[:_NAMED]))
        gangs = f", with the pods of PodGroup {groups} on all nodes" if groups else ""
        message = f"{_count(done)} evicted from {action.node}{gangs}"
        return DrainStep(outcome=ActionOutcome(ActionState.SUCCEEDED, done, message))
    uids = tuple(pod.key.uid for pod in remaining)
    reason = _reason(remaining, problems)
    if running_time >= finish_within:
        limit = format_duration(finish_within)
        gone = f"{done} of {_count(len(action.pods))} gone after {limit}"
        message = f"{gone}; {reason}: decide whether to delete the rest by hand"
        return DrainStep(outcome=ActionOutcome(ActionState.FAILED, done, message, uids))
    evict = tuple(pod for pod in remaining if not pod.is_terminating)
    return DrainStep(
        evict,
        reason=reason,
        job_reasons=_job_reasons(remaining, problems),
        remaining=uids,
        seconds_left=finish_within - running_time,
    )


def has_joined(action: NodeAction, pods: Iterable[NodePod]) -> bool:
    """Return whether a pod of the PodGroups of a drain is not recorded: it came after the set was read. pods:
    those of the Node and of the PodGroups that are not finished.
    """
    gangs = (pod for pod in pods if pod.group in action.pod_groups and not pod.is_terminating)
    return not {pod.key.uid for pod in gangs} <= {key.uid for key in action.pods}


def shown_drains(
    actions: Iterable[NodeAction], remaining: Mapping[str, Collection[str] | None]
) -> list[NodeDrain]:
    """Return the drains that their Nodes show: from the begin until they fail or the quarantine is released.
    remaining: uids of the pods that are not gone yet, by key of the action; None if they were not read.

    After a drain of one GPU the others still work, so that programs would take the Node for an empty one.
    """
    return [
        NodeDrain(
            action.uid,
            action.node,
            len(action.pods),
            None if (uids := remaining.get(action.key)) is None else len(uids),
            action.state == ActionState.SUCCEEDED,
        )
        for action in actions
        if action.request == drain_request(NODE)
        and action.state in {ActionState.RUNNING, ActionState.SUCCEEDED}
        and action.begun_at
        and not action.released_at
    ]


def _job_reasons(pods: Sequence[NodePod], problems: Mapping[str, str]) -> dict[str, str]:
    """Return what the remaining pods of each job wait for, by job; empty if they are of one job."""
    by_job: dict[str, list[NodePod]] = {}
    for pod in pods:
        by_job.setdefault(pod.key.job, []).append(pod)
    return {job: _reason(pods, problems) for job, pods in by_job.items()} if len(by_job) > 1 else {}


def _reason(pods: Sequence[NodePod], problems: Mapping[str, str]) -> str:
    """Return what the remaining pods wait for."""
    refused = [pod for pod in pods if not pod.is_terminating and problems.get(pod.key.uid)]
    if refused:
        return f"{_names(refused)}: {problems[refused[0].key.uid]}"
    return f"{_names(pods)} {'is' if len(pods) == 1 else 'are'} still ending"


def _names(pods: Sequence[NodePod]) -> str:
    names = ", ".join(str(pod.key) for pod in pods[:_NAMED])
    return names + (f" and {len(pods) - _NAMED} more" if len(pods) > _NAMED else "")


def _count(pods: int) -> str:
    return f"{pods} {'pod' if pods == 1 else 'pods'}"
