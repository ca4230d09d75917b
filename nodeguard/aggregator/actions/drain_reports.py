"""Reports of the drains of a leader, from its candidates, the stored drains and its attempts. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from nodeguard.aggregator.actions.drain_attempt import DrainAttempt
from nodeguard.config.amounts import format_duration
from nodeguard.fleet.act.drain_candidates import DrainCandidate
from nodeguard.fleet.act.drain_report import DrainReport, DrainState
from nodeguard.model.action import NodeAction
from nodeguard.model.pod import PodGroupKey, PodKey

_Key = tuple[str, str]


def drain_reports(
    candidates: Mapping[_Key, DrainCandidate],
    drains: Collection[NodeAction],
    attempts: Mapping[_Key, DrainAttempt],
    now: float,
) -> Iterator[DrainReport]:
    """Yield the reports of the running drains with a fault that has ended, and of the candidates.

    candidates, attempts: by uid of the Node and request. drains: stored ones that are not closed. now:
    seconds since the epoch.
    """
    stored = {(action.uid, action.request): action for action in drains}
    for key, action in stored.items():
        if key not in candidates and not action.state.is_finished:
            attempt = attempts.get(key, DrainAttempt())
            yield DrainReport(
                action.node,
                action.uid,
                "",
                (),
                action.created_at,
                DrainState.RUNNING,
                attempt.reason,
                action.pods,
                action.pod_groups,
                attempt.remaining,
                job_reasons=tuple(attempt.job_reasons.items()),
            )
    for key, candidate in candidates.items():
        report = _report(candidate, stored.get(key), attempts.get(key, DrainAttempt()), now)
        if report is not None:
            yield report


def _report(
    candidate: DrainCandidate, action: NodeAction | None, attempt: DrainAttempt, now: float
) -> DrainReport | None:
    """Return the report of a candidate; None for one that is drained, or that has no pod to evict."""
    state, reason, pods = DrainState.WAITS, candidate.blocker, tuple[PodKey, ...]()
    groups: tuple[PodGroupKey, ...] = ()
    remaining: tuple[str, ...] | None = None
    evict_at, costs = 0.0, tuple[str, ...]()
    if action is not None:
        if action.state.is_finished:
            return None
        state, reason, pods = DrainState.RUNNING, attempt.reason, action.pods
        groups, remaining = action.pod_groups, attempt.remaining
    elif candidate.notice is not None:
        state, reason, evict_at = DrainState.ANNOUNCED, "", candidate.notice.deadline
        pods, groups, costs = candidate.notice.pods, candidate.notice.pod_groups, candidate.costs
    elif not candidate.blocker:
        assessment = attempt.assessment
        if assessment is None or not (assessment.reason or assessment.pods):
            return None
        reason, pods = assessment.reason, tuple(pod.key for pod in assessment.pods)
        groups = assessment.groups
        state = DrainState.WAITS if reason else DrainState.WOULD_DRAIN
        if candidate.after and not reason:
            reason = f"after a notice of {format_duration(candidate.after)}"
        if state == DrainState.WOULD_DRAIN:
            costs = attempt.costs
    return DrainReport(
        candidate.node,
        candidate.uid,
        candidate.resource,
        candidate.checks,
        candidate.since,
        state,
        reason,
        pods,
        groups,
        remaining,
        evict_at,
        float(round(now + candidate.limited_for)) if candidate.limited_for else 0.0,
        tuple(attempt.job_reasons.items()) if state == DrainState.RUNNING else (),
        costs,
    )
