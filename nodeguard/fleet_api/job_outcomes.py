"""What became of the jobs that a fault hit, from the drains of their nodes. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from math import inf

from nodeguard.fleet.act.drain_report import DrainReport, DrainState
from nodeguard.fleet_api.action import running_drains
from nodeguard.fleet_api.schema.job import JobOutcomeView, JobState, RejectedPodsView
from nodeguard.fleet_api.service_state import ServiceState, age
from nodeguard.fleet_api.text.wording import api_time
from nodeguard.model.action import ActionKind, ActionState, NodeAction
from nodeguard.model.instant import Instant, rfc3339

# Outcomes of one response.
MAX_OUTCOMES = 64

_DRY_RUN = "dry run: nothing is evicted"


def job_outcomes(
    jobs: Iterable[str], uid: str, service: ServiceState, now: Instant, *, since: float, until: float = inf
) -> tuple[JobOutcomeView, ...]:
    """Return what drains do with the pods of some jobs, by job, the latest drain first. A job that no drain
    has a pod of has no outcome.

    uid: of the Node with the fault; empty for that of a domain. since, until: when the fault began and ended,
    in seconds since the epoch: a drain counts that was recorded by its end, and of which the quarantine was
    not released before its begin. A present fault has no drain with a released quarantine: since is infinite.
    """
    actions = [
        action
        for action in service.actions
        if action.kind == ActionKind.DRAIN
        and not action.state.is_withdrawn
        and _concerns(action, uid)
        and action.created_at <= until
        and not 0 < action.released_at < since
    ]
    actions.sort(key=lambda action: (-action.created_at, action.key))
    running = running_drains(service)
    waiting = [
        report for report in service.drains if report.state != DrainState.RUNNING and _concerns(report, uid)
    ]

    def outcomes(job: str) -> Iterator[JobOutcomeView]:
        for action in actions:
            if uids := {pod.uid for pod in action.pods if pod.job == job}:
                yield _recorded(job, action, running.get((action.uid, action.pods)), uids, now)
        for report in waiting:
            if pods := sum(pod.job == job for pod in report.pods):
                yield _staying(job, report, pods)

    # What forbids a drain before its pods are read keeps those of each job of its node.
    unread = [report for report in waiting if report.reason and not report.pods and report.uid == uid][:1]
    found = (
        outcome
        for job in jobs
        for outcome in tuple(outcomes(job)) or [_staying(job, report, 0) for report in unread]
    )
    return tuple(islice(found, MAX_OUTCOMES))


def drained_jobs(service: ServiceState) -> tuple[str, ...]:
    """Return the jobs with pods in the recorded drains of present quarantines, those of the latest first."""
    drains = [
        action
        for action in service.actions
        if action.kind == ActionKind.DRAIN and not action.state.is_withdrawn and not action.released_at
    ]
    drains.sort(key=lambda action: (-action.created_at, action.key))
    return tuple(dict.fromkeys(pod.job for action in drains for pod in action.pods if pod.job))


def rejected_pods_view(service: ServiceState, uid: str, now: Instant) -> RejectedPodsView | None:
    """Return the pods that the kubelet of a Node rejected; None for none. uid: of the Node."""
    pods = service.rejected_pods.get(uid)
    if pods is None:
        return None
    latest = rfc3339(pods.latest) if pods.latest else ""
    return RejectedPodsView(pods.count, latest, age(now, pods.latest) if latest else 0.0, pods.message)


def _concerns(drain: NodeAction | DrainReport, uid: str) -> bool:
    """Return whether a drain may evict pods of a Node: it is its own, or evicts gangs on all nodes."""
    return uid in {"", drain.uid} or bool(drain.pod_groups)


def _staying(job: str, report: DrainReport, pods: int) -> JobOutcomeView:
    reason = report.reason or _DRY_RUN
    if report.state == DrainState.ANNOUNCED:
        reason = f"the drain is announced for {api_time(rfc3339(report.evict_at))} or later"
    return JobOutcomeView(job, report.node, JobState.STAYS, pods, 0, "", 0.0, reason, "")


def _recorded(
    job: str, action: NodeAction, report: DrainReport | None, uids: Collection[str], now: Instant
) -> JobOutcomeView:
    """Return the outcome of a job by a recorded drain. report: of the drain while it runs on this replica.
    uids: of the pods of the job.
    """
    remaining = _remaining(action, report)
    gone = None if remaining is None else len(uids) - len(remaining.intersection(uids))
    if gone == len(uids):
        state, reason = JobState.EVICTED, ""
    elif not action.state.is_finished:
        state = JobState.LEAVES
        reason = dict(report.job_reasons).get(job, report.reason) if report is not None else ""
    elif remaining is None:
        state, reason = JobState.UNKNOWN, action.message
    else:
        state, reason = JobState.PARTLY_EVICTED, _end(action, remaining, uids)
    return JobOutcomeView(
        job,
        action.node,
        state,
        len(uids),
        gone,
        rfc3339(action.begun_at) if action.begun_at else "",
        age(now, action.begun_at) if action.begun_at else 0.0,
        reason,
        action.key,
    )


def _end(action: NodeAction, remaining: frozenset[str], uids: Collection[str]) -> str:
    """Return how a failed drain ended for a job. Its message is about the pods of all jobs that it left.
    remaining: uids of these. uids: of the pods of the job.
    """
    if remaining.issubset(uids):
        return action.message
    names = ", ".join(str(pod) for pod in action.pods if pod.uid in remaining and pod.uid in uids)
    return f"the drain failed, and left {names}: decide whether to delete these pods by hand"


def _remaining(action: NodeAction, report: DrainReport | None) -> frozenset[str] | None:
    """Return the uids of the pods of a drain that are not gone; None if that is not known."""
    match action.state:
        case ActionState.SUCCEEDED:
            return frozenset()
        case ActionState.FAILED if action.remaining:
            return frozenset(action.remaining)
        case ActionState.RUNNING if report is not None and report.remaining is not None:
            return frozenset(report.remaining)
    return None
