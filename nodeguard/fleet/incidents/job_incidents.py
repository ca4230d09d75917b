"""Incidents of bad starts of jobs, and the jobs that other incidents name. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from math import ceil

from nodeguard.fleet.diagnosis.messages import bad_start_effect, bad_start_message
from nodeguard.fleet.diagnosis.results import JOB, BadJobStart
from nodeguard.fleet.state.node_jobs import NodeJobs
from nodeguard.model.diagnosis import DiagnosisPolicy
from nodeguard.model.finding import Action, Health
from nodeguard.model.incident import DiagnosisRecord, Incident, IncidentState
from nodeguard.model.instant import Instant
from nodeguard.model.job import limit_jobs

# Seconds by which the recorded window grows: the incident is not written again at each vote.
_STEP = 10.0


# An incident of no single Node, which is new.
shared_incident = partial(Incident, node="", uid="", last_transition=0.0)


def job_resource(job: str) -> str:
    """Return the resource of the incident of a job."""
    return f"{JOB}{job}"


def job_incident(name: str, start: BadJobStart, rule: DiagnosisPolicy, now: Instant) -> Incident:
    """Return the incident of a bad start, without its symptoms. name: of the incident."""
    return shared_incident(
        name=name,
        target=job_resource(start.job),
        cause=start.fault_class,
        health=Health.WARNING,
        state=IncidentState.OPEN,
        first_seen=now.wall_of(start.began),
        fault_class="job",
        action=Action.MONITOR,
        message=bad_start_message(start, rule),
        detail=bad_start_effect(rule),
        diagnosis=DiagnosisRecord(
            window=_STEP * ceil((start.last - start.began) / _STEP), first_vote=now.wall_of(start.began)
        ),
        jobs=(start.job,),
    )


def hit_jobs(uids: Iterable[str], jobs: NodeJobs) -> tuple[tuple[str, ...], int]:
    """Return the names of the jobs on some nodes, and how many are beyond the limit of an incident."""
    return limit_jobs(_names(uids, jobs))


def _names(uids: Iterable[str], jobs: NodeJobs) -> Iterator[str]:
    for uid in uids:
        yield from jobs.names(uid)
