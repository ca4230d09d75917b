"""Text of the jobs that a fault hit, and of what became of them. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from math import inf

from nodeguard.fleet_api.job_outcomes import job_outcomes
from nodeguard.fleet_api.schema.job import JobOutcomeView, JobState, RejectedPodsView
from nodeguard.fleet_api.service_state import ServiceState
from nodeguard.fleet_api.text.wording import count_noun, format_age, time_and_age
from nodeguard.fleet_api.view import Field
from nodeguard.model.action import NodeAction
from nodeguard.model.incident import Incident
from nodeguard.model.instant import Instant
from nodeguard.model.job import jobs_text
from nodeguard.model.pod import MAX_REJECTED


def job_fields(jobs: Sequence[str], omitted: int, outcomes: Collection[JobOutcomeView]) -> Iterator[Field]:
    """Yield the fields of the jobs that a fault hit: their names, and what became of each if a drain concerns
    one of them. omitted: number of jobs that are not among the names.
    """
    if not outcomes:
        if jobs:
            yield Field("jobs", jobs_text(tuple(jobs), omitted))
        return
    jobs_by_text: dict[str, list[str]] = {}
    for job in jobs:
        for text in [outcome_text(item) for item in outcomes if item.job == job] or [_unread(job)]:
            jobs_by_text.setdefault(text, []).append(job)
    for number, (text, names) in enumerate(jobs_by_text.items()):
        yield Field("" if number else "jobs", f"{jobs_text(tuple(names), 0)}: {text}")
    if omitted:
        yield Field("", f"and {count_noun(omitted, 'more job')}")


def _unread(job: str) -> str:
    """Return that no drain has pods of a job, and what shows these."""
    namespace = job.rpartition("/")[0] or "NAMESPACE"
    return f"no drain has its pods, and nodeguard reads no others: kubectl get pods -n {namespace} shows them"


def outcome_text(outcome: JobOutcomeView) -> str:
    """Return what a drain does with the pods of a job."""
    drain, pods = f"the drain of {outcome.node}", count_noun(outcome.pods, "pod")
    reason = f": {outcome.reason}" if outcome.reason else ""
    if outcome.state == JobState.STAYS:
        verb = "stays" if outcome.pods == 1 else "stay"
        return f"{pods} {verb}{reason}" if outcome.pods else f"no pod is evicted for now{reason}"
    if not outcome.since:
        return f"{drain} is about to evict {pods}"
    begin = f"{drain} since {time_and_age(outcome.since, outcome.age)}{reason}"
    if outcome.gone is None:
        number = "; how many are gone is not known" if outcome.state == JobState.UNKNOWN else ""
        return f"{pods} evicted by {begin}{number}"
    return f"{outcome.gone} of {pods} gone, evicted by {begin}"


def drained_jobs_texts(incident: Incident, actions: Collection[NodeAction], now: Instant) -> list[str]:
    """Return what drains did with the pods of the jobs that an ended incident hit: a text for each. actions:
    all that are stored.
    """
    # A drain that evicted nothing has no part in the end of an incident: no report of one is needed.
    service = ServiceState("", is_leader=False, started=0.0, actions=actions)
    end = incident.resolved_at or inf
    outcomes = job_outcomes(incident.jobs, incident.uid, service, now, since=incident.first_seen, until=end)
    return [f"{outcome.job}: {outcome_text(outcome)}" for outcome in outcomes]


def rejected_pods_fields(pods: RejectedPodsView | None) -> Iterator[Field]:
    """Yield the field of the pods that the kubelet of a node rejected; none for no pod."""
    if pods is None:
        return
    is_limited = pods.count >= MAX_REJECTED
    number = f"{MAX_REJECTED} or more new pods" if is_limited else count_noun(pods.count, "new pod")
    latest = f", the latest {format_age(pods.age)}" if pods.latest else ""
    message = f": {pods.message}" if pods.message else ""
    text = f"{number} by the kubelet (UnexpectedAdmissionError){latest}{message}"
    yield Field("rejected", text, name_style="suspect")
