"""Notices of drains: pods that may go on working for a while get the time of their eviction first. Pure.

A notice is an action of its own, which has the time: the owner of a pod can change the copy on it. The
drain is recorded only after it, so that it uses no limit before.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from nodeguard.fleet.act.drain_candidates import DrainCandidate
from nodeguard.fleet.act.drain_set import DrainSet
from nodeguard.model.action import ActionKind, NodeAction
from nodeguard.model.eviction import PodNotice
from nodeguard.model.instant import rfc3339
from nodeguard.model.pod import DRAIN_NOW_ANNOTATION, NodePod

# Seconds in which all pods must get the notice. They are no part of the time that a pod has.
WRITE_WITHIN = 120.0


def notice_action(candidate: DrainCandidate, found: DrainSet, now: float) -> NodeAction:
    """Return the notice for the set of a candidate. now: seconds since the epoch."""
    return NodeAction(
        ActionKind.DRAIN_NOTICE,
        candidate.node,
        candidate.uid,
        candidate.request,
        int(now),
        deadline=int(now + candidate.after + WRITE_WITHIN),
        pods=tuple(sorted(pod.key for pod in found.pods)),
        pod_groups=found.groups,
    )


def needs_notice(candidate: DrainCandidate, drain: NodeAction | None) -> bool:
    """Return whether the pods of a candidate are evicted only after a notice. drain: its latest drain that is
    not closed; None for none. One that has begun is not stopped.
    """
    is_answer = drain is not None and (drain.state.is_finished or bool(drain.begun_at))
    return candidate.after > 0.0 and not is_answer


def announced(candidate: DrainCandidate, notice: NodeAction, costs: tuple[str, ...]) -> DrainCandidate:
    """Return a candidate that waits for the end of its notice. costs: of its evictions."""
    blocker = f"its pods have notice until {rfc3339(notice.deadline)}"
    return replace(candidate, blocker=blocker, notice=notice, costs=costs)


def pod_notice(candidate: DrainCandidate, notice: NodeAction) -> PodNotice:
    """Return what the pods of a notice get."""
    drain_at = rfc3339(notice.deadline)
    return PodNotice(
        drain_at,
        f"nodeguard evicts this pod at {drain_at} or later: {', '.join(candidate.checks)} on {notice.node}. "
        f'Annotate all pods of its drain with {DRAIN_NOW_ANNOTATION}: "true" to leave now.',
    )


def unnoticed_pods(
    notice: NodeAction, pods: Iterable[NodePod], notices: Iterable[NodeAction]
) -> list[NodePod]:
    """Return the pods of a set that do not show the time of its notice, or an earlier one of another notice.
    notices: all that run.
    """
    valid = {rfc3339(item.deadline) for item in notices if item.deadline <= notice.deadline}
    return [pod for pod in pods if not pod.is_terminating and pod.drain_at not in valid]


def noticed_pods(notice: NodeAction, pods: Iterable[NodePod], notices: Iterable[NodeAction]) -> list[NodePod]:
    """Return the pods that show a notice that ends, whichever time their owners wrote. notices: those that go
    on. Their pods are left to them: they would be reported as safe in between.
    """
    own, uids = rfc3339(notice.deadline), {key.uid for key in notice.pods}
    others = {key.uid for item in notices if item.key != notice.key for key in item.pods}
    return [
        pod
        for pod in pods
        if not pod.is_terminating
        and pod.drain_at
        and pod.key.uid not in others
        and (pod.drain_at == own or pod.key.uid in uids)
    ]


def have_agreed(pods: Iterable[NodePod]) -> bool:
    """Return whether the owners of all pods that still run agree to leave before the time of their notice. A
    set leaves whole, so that no pod leaves early because another one agreed.
    """
    return all(pod.agrees_to_leave for pod in pods if not pod.is_terminating)
