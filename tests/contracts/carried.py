"""A finding, an incident, a mark's cause, a degraded domain and an action, carried through each projection of the fleet."""

from __future__ import annotations

from typing import cast

import msgspec
from msgspec.structs import replace

from nodeguard.fleet.decide.domain_decision import DomainDecision
from nodeguard.fleet.diagnosis.messages import degraded_message
from nodeguard.fleet.diagnosis.results import DegradedDomain
from nodeguard.fleet.incidents.domain_incidents import domain_incident
from nodeguard.fleet.state.node_marks import decode_record, encode_record
from nodeguard.fleet_api.action import list_actions
from nodeguard.fleet_api.domain import describe_domain
from nodeguard.fleet_api.incident import describe_incident, list_incidents
from nodeguard.fleet_api.marks import marks_of_node
from nodeguard.fleet_api.node import describe_node
from nodeguard.fleet_api.service_state import ServiceState
from nodeguard.kube.action_object import action_body, decode_action
from nodeguard.kube.incident_object import decode_incident
from nodeguard.kube.incident_projection import incident_status, to_incident
from nodeguard.model.action import NodeAction
from nodeguard.model.finding import DataStatus, Finding, Health, Verdict
from nodeguard.model.incident import Incident, IncidentState
from nodeguard.model.instant import Instant
from nodeguard.model.mark import STATE_ANNOTATION, Charge, Mark, MarkCause, MarkRecord
from nodeguard.model.node import Taint
from nodeguard.wire.encoding import decode_message, encode
from nodeguard.wire.report import Report
from nodeguard.wire.report_builder import NodeFacts, build_report
from tests.cli.fleet_output import LEADER
from tests.fleet.scene import Fleet

SERVICE = ServiceState("replica-0", is_leader=True, started=9_000.0)
NODE = "node-0"
NOW = Instant(2_000_000_000.0, 1_000.0, "boot")


def report_of(finding: Finding) -> Report:
    """The report of a finding, as the aggregator decodes it."""
    verdict = Verdict(Health.FATAL, DataStatus.FRESH, (finding,))
    facts = NodeFacts(NODE, "1", "c", {finding.check: ("rack",)})
    report = decode_message(encode(build_report(verdict, NOW, facts, 2)))
    assert isinstance(report, Report)
    return report


def fleet_with(finding: Finding) -> Fleet:
    """A fleet in which a node reports a finding."""
    fleet = Fleet(4)
    fleet.reports["uid-0"] = report_of(finding)
    fleet.planner.record_report("uid-0", fleet.reports["uid-0"], fleet.now)
    fleet.plan()
    return fleet


def finding_view(finding: Finding) -> object:
    fleet = fleet_with(finding)
    view = describe_node(fleet.planner, SERVICE, NODE, fleet.now)
    assert view is not None
    return view.findings[0]


def incident_of(finding: Finding) -> object:
    """The object of a finding's incident."""
    [incident] = fleet_with(finding).planner.all_incidents()
    return incident_status(incident)


def through_cluster(incident: Incident) -> Incident:
    """An incident that was written to its object, and read again."""
    metadata = {"name": incident.name, "uid": "u", "resourceVersion": "7"}
    body = {"metadata": metadata, "status": incident_status(incident)}
    restored = to_incident(decode_incident(msgspec.json.encode(body)))
    assert restored is not None
    return restored


def fleet_with_incident(incident: Incident) -> Fleet:
    fleet = Fleet(4)
    fleet.planner.tracker.recorded.by_uid[incident.uid] = {incident.name: incident}
    return fleet


def incident_view(incident: Incident) -> object:
    fleet = fleet_with_incident(incident)
    return describe_incident(fleet.planner, SERVICE, incident.name, fleet.now)


def incident_summary(incident: Incident) -> object:
    fleet = fleet_with_incident(incident)
    [summary] = list_incidents(fleet.planner, SERVICE, fleet.now, frozenset(IncidentState)).incidents
    return summary


def through_annotation(record: MarkRecord) -> MarkRecord:
    restored = decode_record(encode_record(record))
    assert restored is not None
    return restored


def marked_fleet(record: MarkRecord) -> Fleet:
    fleet = Fleet(4)
    taints = tuple(Taint(cause.mark.key, "NoSchedule") for cause in record.causes)
    if record.degraded:
        taints = (*taints, Taint(Mark.DOMAIN_DEGRADED.key, "NoSchedule"))
    fleet.change(0, annotations={STATE_ANNOTATION: encode_record(record)}, taints=taints)
    return fleet


def record_of(cause: MarkCause) -> MarkRecord:
    return MarkRecord((cause,), Charge(cause.check, Mark.QUARANTINE, 0.0))


def mark_view(record: MarkRecord) -> object:
    fleet = marked_fleet(record)
    [view] = marks_of_node(fleet.planner, "uid-0", fleet.now)
    return view


def incident_of_mark(cause: MarkCause) -> object:
    """The object of the incident of a mark, on a node that reports no finding."""
    fleet = marked_fleet(record_of(cause))
    fleet.plan()
    [incident] = fleet.planner.all_incidents()
    return incident_status(incident)


def fleet_with_domain(degraded: DegradedDomain) -> tuple[Fleet, DomainDecision]:
    fleet = Fleet(16)
    evidence = degraded_message(degraded, fleet.planner.diagnosis.rule)
    decision = DomainDecision(degraded, IncidentState.MARKED, evidence=evidence)
    return fleet, decision


def domain_object(degraded: DegradedDomain) -> object:
    fleet, decision = fleet_with_domain(degraded)
    return incident_status(domain_incident(decision, set(), lambda *_: None, fleet.now))


def domain_after_restart(degraded: DegradedDomain) -> object:
    """The domain that a new aggregator restores from the incident's object."""
    fleet, decision = fleet_with_domain(degraded)
    incident = domain_incident(decision, set(), lambda *_: None, fleet.now)
    fleet.planner.restore_incidents([through_cluster(replace(incident, occurrences=degraded.times))])
    fleet.plan()
    return fleet.planner.diagnosis.degraded_domains[degraded.domain]


def domain_view(degraded: DegradedDomain) -> object:
    fleet, decision = fleet_with_domain(degraded)
    planner = fleet.planner
    cast("dict[str, DegradedDomain]", planner.diagnosis.degraded_domains)[degraded.domain] = degraded
    planner.domain_marks.decisions[degraded.domain] = decision
    return describe_domain(planner, LEADER, degraded.domain, fleet.now)


def action_through_cluster(action: NodeAction) -> NodeAction:
    """An action that was written to its object, and read again."""
    body = action_body(action, "nodeguard", "7")
    body["metadata"] |= {"uid": "u"}
    restored = decode_action(msgspec.json.encode(body)).action
    assert restored is not None
    return restored


def action_view(action: NodeAction) -> object:
    [view] = list_actions(replace(SERVICE, actions=(action,)), NOW).actions
    return view
