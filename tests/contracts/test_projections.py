"""Every field of a finding, an incident, a mark's cause, a degraded domain and an action arrives where it is
projected.

A field that does not arrive has its reason in `omitted`; one that is listed there and arrives fails, too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from msgspec import Struct

from nodeguard.aggregator.notifications.formats import notification_of
from nodeguard.cli.render.verdict_json import finding_output
from nodeguard.fleet.diagnosis.results import DegradedDomain
from nodeguard.model.action import ActionKind, NodeAction
from nodeguard.model.finding import Finding
from nodeguard.model.incident import Incident, IncidentState
from nodeguard.model.mark import DegradedMark, Mark, MarkCause, MarkRecord
from tests.contracts.carried import (
    NOW,
    action_through_cluster,
    action_view,
    domain_after_restart,
    domain_object,
    domain_view,
    finding_view,
    incident_of,
    incident_of_mark,
    incident_summary,
    incident_view,
    mark_view,
    record_of,
    report_of,
    through_annotation,
    through_cluster,
)
from tests.contracts.filled import Pair, filled, leaves

GPU, OTHER = "gpu/0000:01:00", "gpu/0000:02:00"


@dataclass(frozen=True)
class Projection:
    """A projection of a struct. names: of fields with another name in it. omitted: fields that it leaves out,
    with the reason.
    """

    name: str
    source: type[Struct]
    project: Callable[[Any], object]
    names: Mapping[str, str] = field(default_factory=dict)
    omitted: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name


# Fields with a limited set of values.
VALUES: dict[type[Struct], dict[str, Pair]] = {
    Finding: {"target": (GPU, OTHER), "targets[]": (f"{GPU}/nvlink/1", f"{GPU}/nvlink/2")},
    Incident: {
        "uid": ("uid-0", "uid-1"),
        "node": ("node-0", "node-1"),
        "target": (GPU, OTHER),
        "state": (IncidentState.MARKED, IncidentState.OPEN),
    },
    MarkCause: {
        "mark": (Mark.QUARANTINE, Mark.SUSPECT),
        "target": (GPU, OTHER),
        "targets[]": (f"{GPU}/nvlink/1", f"{GPU}/nvlink/2"),
    },
    # Each kind has fields of its own: a drain has no findings.
    NodeAction: {"kind": (ActionKind.CLEAR, ActionKind.DRAIN)},
    DegradedMark: {"domain": ("rack/r0", "rack/r1"), "name": ("rack/r2", "rack/r3")},
    DegradedDomain: {
        "name": ("rack/r2", "rack/r3"),
        "domain": ("rack/r0", "rack/r1"),
        "fault_classes[]": ("link", "thermal"),
        "voters[]": ("uid-0", "uid-1"),
        "moved[]": ("uid-2", "uid-3"),
        "since": (9_000.0, 9_100.0),
        "began": (8_000.0, 8_100.0),
        "recovering_since": (9_200.0, 9_300.0),
        "within": (60.0, 120.0),
        "restored": (False, True),
    },
}


NAMED = "people name a node by its name"
SYMPTOM_FIELDS = [path for path, _ in leaves(Incident) if path.startswith("symptoms[].")]
SUPPRESSION = "of a suppressed check, which the status shows"
TAKEOVER = "for the next aggregator; people see the domain, the check or the job itself"
DIAGNOSIS = [path for path, _ in leaves(Incident) if path.startswith("diagnosis.")]
MARKS = "a restart derives it from the marks of the Nodes"
EVIDENCE = dict.fromkeys(("size", "within", "siblings", "elsewhere", "restored"), "evidence")
CATALOGUE = "the receiver has it in its own catalogue, by the check's name"
PROCESS = {
    f"evidence[].{name}": "the line of the log names the process; its meaning is the finding's message"
    for name in ("meaning", "process", "pid", "workload")
}
PROJECTIONS = (
    Projection(
        "finding in report",
        Finding,
        lambda finding: report_of(finding).findings[0],
        names={"since": "age", "evidence[].text": "message", "evidence[].at": "age"},
        omitted=dict.fromkeys(("title", "remedy", "runbook"), CATALOGUE) | PROCESS,
    ),
    Projection(
        "finding in API",
        Finding,
        finding_view,
        names=dict.fromkeys(("evidence[].source", "evidence[].text"), "evidence"),
        omitted={
            **dict.fromkeys(("title", "remedy", "runbook", "family"), CATALOGUE),
            **PROCESS,
            "evidence[].at": "the finding has its age; the agent's own output has that of each evidence",
            "evidence[].count": "the message of the finding has the count",
        },
    ),
    Projection("finding in check -o json", Finding, finding_output, names={"evidence[].text": "reading"}),
    Projection(
        "finding in NodeIncident",
        Finding,
        incident_of,
        names={
            "check": "cause",
            "since": "first_seen",
            "evidence[].source": "evidence",
            "evidence[].text": "evidence",
        },
        omitted={
            **dict.fromkeys(("title", "remedy", "runbook", "family"), CATALOGUE),
            **PROCESS,
            "targets[]": "the message names them; there may be 64",
            "data_status": "a finding that is not fresh changes no incident",
            "note": "a limit of the reading, which `describe node` shows",
            "evidence[].at": "it would change the object with every report",
            "evidence[].count": "it would change the object with every report",
        },
    ),
    Projection(
        "incident through NodeIncident",
        Incident,
        through_cluster,
        omitted={"owner": "the next plan has it, from the policy"},
    ),
    Projection(
        "incident through the file of a standalone aggregator",
        Incident,
        lambda incident: msgspec.json.decode(msgspec.json.encode(incident), type=Incident),
    ),
    Projection(
        "incident in API",
        Incident,
        incident_view,
        names={"target": "resource", "first_seen": "since", "detail": "reason"},
        omitted={
            "uid": NAMED,
            "parent": "the incident of the domain or check names the fault",
            "budget": "the reason has the budget, with its current use",
            "owner": "the guidance has it",
            "highest_health": "it decides only whether an incident is announced again",
            "confinement.since": SUPPRESSION,
            "confinement.nodes": SUPPRESSION,
            **dict.fromkeys(DIAGNOSIS, TAKEOVER),
        },
    ),
    Projection(
        "incident in a list of the API",
        Incident,
        incident_summary,
        names={"target": "resource", "first_seen": "since", "detail": "summary"},
        omitted={
            "uid": NAMED,
            **dict.fromkeys(
                (
                    *("last_transition", "component", "fault_class", "resolved_at", "occurrences", "parent"),
                    *("budget", "highest_health", "symptoms_omitted"),
                    *SYMPTOM_FIELDS,
                ),
                "the incident in full has it",
            ),
            "owner": "the guidance has it",
            "confinement.since": SUPPRESSION,
            "confinement.nodes": SUPPRESSION,
            **dict.fromkeys(DIAGNOSIS, TAKEOVER),
        },
    ),
    Projection(
        "incident in notification",
        Incident,
        lambda incident: notification_of(incident, "opened", incident.message, NOW.wall),
        names={"name": "incident", "first_seen": "since", "message": "text", "occurrences": "id"},
        omitted={
            "uid": NAMED,
            "last_transition": "the notification has the time of its own change",
            "scope": "the text has it",
            "component": "the incident has it",
            "fault_class": "the incident has it",
            "detail": "the text has it",
            **dict.fromkeys((*SYMPTOM_FIELDS, "symptoms_omitted"), "the incident has the symptoms"),
            "resolved_at": "the notification of the end has the time",
            "parent": "an incident with a parent is not notified",
            "budget": "the text has it",
            "mark": "the text has it",
            "highest_health": "the notification of that health was sent",
            "confinement.since": SUPPRESSION,
            "confinement.nodes": SUPPRESSION,
            **dict.fromkeys(DIAGNOSIS, TAKEOVER),
            "jobs[]": "the text has them",
            "jobs_omitted": "the text has it",
            "write": "the text has it",
            "owner": "the guidance has it",
        },
    ),
    Projection(
        "cause of a mark through the annotation",
        MarkCause,
        lambda cause: through_annotation(record_of(cause)).causes[0],
    ),
    Projection("cause of a mark in API", MarkCause, lambda cause: mark_view(record_of(cause))),
    Projection(
        "cause of a mark in NodeIncident",
        MarkCause,
        incident_of_mark,
        names={"check": "cause", "since": "first_seen"},
        omitted={"targets[]": "the finding names them"},
    ),
    Projection(
        "degraded mark through the annotation",
        DegradedMark,
        lambda mark: through_annotation(MarkRecord(degraded=(mark,))).degraded[0],
    ),
    Projection(
        "degraded domain in NodeIncident",
        DegradedDomain,
        domain_object,
        names={**dict.fromkeys(EVIDENCE, "message"), "name": "target", "began": "first_seen"},
        omitted={
            "since": "the first vote tells when the fault began",
            "voters[]": "the message has their number, and the symptoms are theirs",
            "times": "the incident counts its occurrences",
            **dict.fromkeys(("replaced[]", "moved[]"), MARKS),
        },
    ),
    Projection(
        "degraded domain after a restart",
        DegradedDomain,
        domain_after_restart,
        names={"recovering_since": "since"},
        omitted={
            "since": "a restored domain is one that recovers, or is evaluated again",
            **dict.fromkeys(("voters[]", "within", "siblings", "elsewhere"), "the nodes are evaluated again"),
            "size": "counted again",
            "restored": "true",
            **dict.fromkeys(("replaced[]", "moved[]"), MARKS),
        },
    ),
    Projection(
        "degraded domain in API",
        DegradedDomain,
        domain_view,
        names={**EVIDENCE, "name": "incident", "voters[]": "votes", "times": "times_degraded"},
        omitted={
            "recovering_since": "the condition of the end is there as text",
            "replaced[]": "the decision has the marks of the parts until they are replaced",
            "moved[]": "they are among the members, by number",
        },
    ),
    Projection("action through NodeAction", NodeAction, action_through_cluster),
    Projection(
        "action in API",
        NodeAction,
        action_view,
        names={"findings[].check": "purpose", "findings[].target": "purpose"},
        omitted={
            "uid": NAMED,
            "occurrence": "people see the incident, and the time of the request",
            "deadline": "the state shows that it was missed",
            **dict.fromkeys(
                (
                    *("gpus[]", "seconds", "pods[].namespace", "pods[].name", "pods[].uid", "pods[].job"),
                    *("pod_groups[].namespace", "pod_groups[].name"),
                ),
                "the purpose of another kind has it",
            ),
            "remaining[]": "the outcomes of the jobs count them, and the message names some",
            "begun_at": "the message has what a running drain waits for",
            "released_at": "it decides only whether a later quarantine is drained",
            "taken_over_at": "it decides only when the drain ends",
        },
    ),
)


def cases() -> Iterator[Any]:
    for projection in PROJECTIONS:
        for path, _ in leaves(projection.source):
            yield pytest.param(projection, path, id=f"{projection.name}: {path}")


def flat(content: Any, path: str = "") -> dict[str, Any]:
    """Return the values of a projection by path."""
    if isinstance(content, Mapping):
        parts = {f"{path}.{name}": value for name, value in content.items()}
    elif isinstance(content, list):
        parts = {f"{path}[{number}]": value for number, value in enumerate(content)}
    else:
        return {path: content}
    return {below: value for name, part in parts.items() for below, value in flat(part, name).items()}


def projected(projection: Projection, other: str = "") -> dict[str, Any]:
    value = filled(projection.source, VALUES.get(projection.source, {}), other)
    return flat(json.loads(msgspec.json.encode(projection.project(value))))


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])([A-Z])", r"_\1", name).lower()


@pytest.mark.parametrize(("projection", "path"), list(cases()))
def test_a_field_arrives_or_is_left_out_on_purpose(projection: Projection, path: str) -> None:
    first, second = projected(projection), projected(projection, path)
    changed = {place: second.get(place) for place in first | second if first.get(place) != second.get(place)}
    name = projection.names.get(path) or re.findall(r"\w+", path)[-1]
    arrived = {
        place: value for place, value in changed.items() if name in map(snake, re.findall(r"\w+", place))
    }
    if path in projection.omitted:
        arrived |= {place: value for place, value in changed.items() if f"{path} two" in str(value)}
        assert not arrived, f"{path} arrives: remove it from the list of omitted fields"
    else:
        assert arrived, f"{path} does not arrive as {name}; what changes: {changed}"


@pytest.mark.parametrize("projection", PROJECTIONS, ids=str)
def test_the_lists_name_fields_that_exist(projection: Projection) -> None:
    fields = {path for path, _ in leaves(projection.source)}
    assert {*projection.names, *projection.omitted} <= fields
    assert not set(projection.names) & set(projection.omitted)
