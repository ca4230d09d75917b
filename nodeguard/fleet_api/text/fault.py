"""The card of a fault of a node: a part, what is wrong with it, its marks and its incident. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from nodeguard.fleet.decide.mark_requests import resource_of
from nodeguard.fleet_api.schema.incident_summary import IncidentSummary
from nodeguard.fleet_api.schema.node import FindingView, MarkView, NodeView
from nodeguard.fleet_api.text.finding import FindingTexts, finding_fields, finding_heading
from nodeguard.fleet_api.text.phrases import check_name, guidance_text, mark_fields, mark_section, state_text
from nodeguard.fleet_api.text.wording import time_and_age
from nodeguard.fleet_api.view import Field, Section, Subject, see
from nodeguard.model.finding import Action, DataStatus
from nodeguard.model.incident import GRANTED_STATES, IncidentState
from nodeguard.model.mark import Requester, mark_kind
from nodeguard.model.target import NODE


class NodeFault(NamedTuple):
    """The findings on one part, the marks for them, and its incident. Of the node itself, the findings of one
    check; of a degraded domain, all that it explains. findings: worst first; none where only the mark is
    left. incident: None where there is none.
    """

    findings: tuple[FindingView, ...]
    marks: tuple[MarkView, ...]
    incident: IncidentSummary | None


# The part that failed, with the check if that is the node; and whether the fault is injected. Of a degraded
# domain, its incident.
_Key = tuple[str, str, bool]


def _key(target: str, check: str, *, injected: bool) -> _Key:
    resource = resource_of(target)
    return resource, check if resource == NODE else "", injected


def node_faults(node: NodeView) -> tuple[NodeFault, ...]:
    """Return the faults of a node, the worst first, and those of which only the mark is left last."""
    of_domains = {incident.name: incident for incident in node.incidents if incident.domain}
    findings: dict[_Key, list[FindingView]] = defaultdict(list)
    explained = dict[tuple[str, str], _Key]()
    for finding in node.findings:
        key = _key(finding.target, finding.check, injected=finding.injected)
        if finding.explained_by in of_domains:
            key = explained[finding.check, finding.target] = (finding.explained_by, "", False)
        findings[key].append(finding)
    marks: dict[_Key, list[MarkView]] = defaultdict(list)
    for mark in node.marks:
        if not is_of_domain(mark):
            key = _key(mark.target, mark.check, injected=mark.injected)
            marks[explained.get((mark.check, mark.target), key)].append(mark)
    incidents = _incidents(node)
    faults = (
        NodeFault(
            tuple(sorted(findings.get(key, ()), key=lambda finding: -finding.health.rank)),
            tuple(marks.get(key, ())),
            of_domains.get(key[0]) or incidents.get((key[0], key[2])),
        )
        for key in dict.fromkeys((*findings, *marks))
    )
    return tuple(sorted(faults, key=_rank))


def _rank(fault: NodeFault) -> int:
    return -fault.findings[0].health.rank if fault.findings else 1


def _incidents(node: NodeView) -> Mapping[tuple[str, bool], IncidentSummary]:
    """Return the open incidents of the node, by part and whether they are injected."""
    return {
        (incident.resource, incident.injected): incident
        for incident in node.incidents
        if incident.node == node.node and incident.state != IncidentState.RESOLVED
    }


def is_of_domain(mark: MarkView) -> bool:
    """Return whether a mark is for a degraded domain, not for a fault of the node."""
    return mark_kind(mark.mark).requester == Requester.DOMAIN


def fault_section(fault: NodeFault) -> Section:
    """Return the card: what failed, since when, the evidence, what nodeguard did, and what to do."""
    if not fault.findings:
        first, *others = map(mark_section, fault.marks)
        rows = (row for section in others for row in (Field("also", str(section.heading)), *section.rows))
        return replace(first, rows=(*first.rows, *rows, *_incident_fields(fault)))
    heading = finding_heading(fault.findings[0], _title(fault.findings[0]))
    return Section(heading, tuple(_fields(fault)))


def _title(finding: FindingView) -> str:
    return check_name(finding.check, injected=finding.injected)


def _fields(fault: NodeFault) -> Iterator[Field]:
    marks = list(fault.marks)
    first = fault.findings[0]
    domain = fault.incident if fault.incident is not None and fault.incident.domain else None
    advised = set[tuple[str, Sequence[str]]]()
    for finding in fault.findings:
        own = [mark for mark in marks if (mark.check, mark.target) == (finding.check, finding.target)]
        marks = [mark for mark in marks if mark not in own]
        if finding is not first:
            yield Field("also", str(finding_heading(finding, _title(finding))), finding.health.value)
        shared = finding.explained_by if domain is None and finding.state == IncidentState.WITHHELD else ""
        texts = _texts(finding, own, is_explained=domain is not None or shared != "")
        advice = texts.action, texts.commands
        # What to do is the same for several findings on a part: it is shown once.
        yield from finding_fields(
            finding, texts._replace(action="", commands=()) if advice in advised else texts
        )
        advised.add(advice)
        if shared:
            # A suppressed check, or the start of a job: to empty and repair each node may be wrong.
            yield Field("cause", f"{shared}: see what to do there", about=Subject("incident", shared))
    for mark in marks:
        yield from mark_fields(mark, f"{mark.mark} for {mark.check}")
    if domain is not None:
        yield from _domain_fields(domain)
    yield see(*(Subject("check", check) for check in dict.fromkeys(item.check for item in fault.findings)))
    yield from _incident_fields(fault)


def _texts(finding: FindingView, marks: Sequence[MarkView], *, is_explained: bool) -> FindingTexts:
    """Return the texts of a finding. marks: its own. is_explained: whether another incident explains
    it.
    """
    status = "" if finding.data_status == DataStatus.FRESH else f"; data {finding.data_status.value}"
    # The node needs no repair for a finding that its domain explains.
    is_covered = finding.state == IncidentState.OPEN
    acts = finding.action != Action.NONE and not (is_covered or is_explained)
    return FindingTexts(
        title=_title(finding),
        since=f"{time_and_age(finding.since, finding.age)}{status}",
        evidence=finding.evidence,
        omitted=finding.evidence_omitted,
        marks=() if is_covered and is_explained and not marks else tuple(_marks(finding, marks)),
        action=(finding.remedy or finding.action.phrase) if acts else "",
        commands=finding.how if acts else (),
    )


def _domain_fields(incident: IncidentSummary) -> Iterator[Field]:
    """Yield the degraded domain that explains the findings of a card, and what to do. incident: its own."""
    repair = "nothing to repair at this node" if incident.action == Action.NONE else "see what to do there"
    text = f"{incident.domain} is degraded: {repair}"
    yield Field("cause", text, about=Subject("domain", incident.domain))
    if incident.guidance is not None:
        yield Field("action", guidance_text(incident.guidance))


def _marks(finding: FindingView, marks: Sequence[MarkView]) -> Iterator[Field]:
    """Yield what nodeguard did: the mark with what it waits for, or why there is none."""
    if finding.state not in GRANTED_STATES or not marks:
        style = "fatal" if finding.state == IncidentState.WITHHELD else "dim"
        yield Field("mark", _mark_state(finding), name_style=style)
    for mark in marks:
        yield from mark_fields(
            mark, mark.mark, "advised" if finding.state == IncidentState.ADVISED else "set"
        )


def _mark_state(finding: FindingView) -> str:
    """Return the state of the mark that a finding requests and that is not on the node, as text."""
    match finding.state:
        case IncidentState.MARKED | IncidentState.ADVISED:
            return "covered by another mark of the node"
        case IncidentState.PENDING:
            return state_text(IncidentState.PENDING, finding.until, finding.seconds_left)
        case IncidentState.WITHHELD:
            return f"withheld: {finding.reason}"
        case IncidentState.DRY_RUN:
            return f"dry run: {dry_run_effect(finding.reason)}"
        case _:
            return f"none: {finding.reason}"


def dry_run_effect(reason: str) -> str:
    """Return what enforcement would do. reason: why the mark would be withheld, empty for set."""
    return f"would be withheld: {reason}" if reason else "would be set; the check is not enforced"


def _incident_fields(fault: NodeFault) -> Iterator[Field]:
    if fault.incident is not None:
        if fault.incident.acknowledged:
            yield Field("ack", f"by {fault.incident.acknowledged}")
        yield incident_field(fault.incident)


def incident_field(incident: IncidentSummary, state: str = "") -> Field:
    """Return the field with the name of an incident. state: what to add about it; empty for nothing."""
    name = "resolved" if incident.state == IncidentState.RESOLVED else "incident"
    value = f"{incident.name} ({state})" if state else incident.name
    return Field(name, value, about=Subject("incident", incident.name))
