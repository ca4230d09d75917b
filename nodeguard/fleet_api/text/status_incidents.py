"""The worst incidents in the view of nodeguard status: those of one node together. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence

from nodeguard.fleet.diagnosis.results import JOB
from nodeguard.fleet_api.schema.incident_summary import IncidentSummary
from nodeguard.fleet_api.text.phrases import (
    check_name,
    group_counts,
    groups_text,
    guidance_text,
    shared_subject_state,
    state_text,
    subject_noun,
    subject_text,
)
from nodeguard.fleet_api.text.wording import target_text
from nodeguard.fleet_api.view import Note, Section, badge_heading
from nodeguard.judge.formatting import format_duration
from nodeguard.model.finding import Action
from nodeguard.model.incident import IncidentState
from nodeguard.model.job import jobs_text

# The action on an incident without a summary.
_EFFECTS = {
    IncidentState.MARKED: "new work is kept away",
    IncidentState.ADVISED: "advice: keep new work away",
}
# Actions that change nothing on the node.
_NO_REPAIR = frozenset({Action.NONE, Action.MONITOR})


def incident_entries(incidents: Iterable[IncidentSummary], notes: int) -> list[Section]:
    """Return an entry for each node with several incidents, and for each other group of incidents.

    An entry of a node has the incidents of this node only. If an earlier group of several nodes has the node,
    too, the entry counts its incidents as further ones.

    incidents: groups, worst first. notes: rows below a heading; with a single one, the heading of a group has
    the states of its nodes.
    """
    by_subject: dict[object, list[IncidentSummary]] = {}
    for incident in incidents:
        # People acknowledge one incident of a node, and a rehearsal is no fault of it.
        of_node = (incident.node, incident.injected, incident.acknowledged)
        subject: object = of_node if _is_of_one_node(incident) else incident
        by_subject.setdefault(subject, []).append(incident)
    return [
        _node_entry(groups, notes)
        if _is_of_one_node(groups[0]) and sum(map(_size, groups)) > 1
        else _entry(groups[0], notes)
        for groups in by_subject.values()
    ]


def _size(incident: IncidentSummary) -> int:
    """Return how many incidents a group has."""
    return incident.similar + 1


def _is_of_one_node(incident: IncidentSummary) -> bool:
    """Return whether all incidents of a group are of one node."""
    return incident.node != "" and all(group.names == (incident.node,) for group in incident.groups)


def _node_entry(groups: Sequence[IncidentSummary], notes: int) -> Section:
    """Return the entry of a node with several incidents: their number by health, the repair, what failed."""
    worst = groups[0]
    health = worst.health.value
    counts: dict[str, int] = {}
    for group in groups:
        counts[group.health.value] = counts.get(group.health.value, 0) + _size(group)
    healths_above = {health.value for health in worst.earlier}
    number = ", ".join(
        f"{count} more {name}" if name in healths_above else f"{count} {name}"
        for name, count in counts.items()
    )
    state = state_text(worst.state, worst.until, worst.seconds_left)
    acknowledged = f" (acknowledged: {worst.acknowledged})" if worst.acknowledged else ""
    age = format_duration(max(group.age for group in groups))
    title = f"{worst.node}: {number}; {state}{acknowledged}, {age} old"
    rows = [Note("; ".join(map(_folded, groups)))]
    rows[:0] = _repair(groups, " for these" if worst.earlier else "")
    rows.extend(_jobs(groups))
    rows.append(Note(f"nodeguard describe node {worst.node}", "dim"))
    return Section(badge_heading(health, health, title), tuple(rows[:notes]), "entry")


def _folded(group: IncidentSummary) -> str:
    """Return the incidents of one check on a node: `gpu-lost (GPU 0000:3b:00)`, `nvlink-down (12)`."""
    target = target_text(group.resource, group.hardware)
    return f"{check_name(group.cause, injected=group.injected)} ({_size(group) if group.similar else target})"


def _entry(incident: IncidentSummary, notes: int) -> Section:
    """Return the entry of one incident, or of similar ones on several nodes."""
    health = incident.health.value
    name = check_name(incident.cause, injected=incident.injected)
    acknowledged = f" (acknowledged: {incident.acknowledged})" if incident.acknowledged else ""
    subject = subject_text(incident.node, incident.domain, incident.resource)
    age = f"{format_duration(incident.age)} old"
    command = f"nodeguard get incidents --check {shlex.quote(incident.cause)}"
    if incident.groups and notes <= 1:
        title = f"{name}: {group_counts(incident.groups)}{acknowledged}, {age}"
        rows = [Note(f"such as {incident.node or subject}; {command}", "dim")]
    elif incident.groups:
        title = f"{name}, {_size(incident)} incidents, {age}; such as {subject}{acknowledged}"
        noun = subject_noun(incident.node, incident.domain, incident.resource)
        rows = [Note(groups_text(incident.groups, noun)), *_jobs([incident]), Note(command, "dim")]
    else:
        cause = f"{name}, {state_text(incident.state, incident.until, incident.seconds_left)}{acknowledged}"
        if not (incident.node or incident.domain):
            cause = "bad start" if incident.resource.startswith(JOB) else "suppressed"
        title = f"{subject}: {cause}, {age}"
        rows = _rows(incident, subject)
    return Section(badge_heading(health, health, title), tuple(rows[:notes]), "entry")


def _repair(incidents: Sequence[IncidentSummary], scope: str = "") -> Iterator[Note]:
    """Yield the strongest action on some incidents, if it is a repair. scope: of which it is."""
    action = max((incident.action for incident in incidents), key=lambda action: action.rank)
    if action not in _NO_REPAIR:
        yield Note(f"to do{scope}: {action.phrase}")


def _jobs(incidents: Sequence[IncidentSummary]) -> Iterator[Note]:
    """Yield the jobs that some incidents hit, if there are any."""
    names = dict.fromkeys(job for incident in incidents for job in incident.jobs)
    if names:
        omitted = max(incident.jobs_omitted for incident in incidents)
        yield Note(f"jobs: {jobs_text(tuple(names), omitted)}")


def _rows(incident: IncidentSummary, subject: str) -> list[Note]:
    """Return what a single incident is, who acts on a domain, and the command for more."""
    summary = incident.summary or _EFFECTS.get(incident.state, "")
    state = shared_subject_state(incident.resource)
    repeated = f"{incident.domain}: " if incident.domain else f"{subject} {state}: "
    rows = [Note(summary.removeprefix(repeated))]
    if incident.guidance is not None:
        rows.append(Note(guidance_text(incident.guidance)))
    else:
        rows.extend(_repair([incident]))
    rows.extend(_jobs([incident]))
    rows.append(Note(f"nodeguard describe incident {incident.name}", "dim"))
    return rows
