"""Schema of incidents: one incident in full, and the list of incidents."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from nodeguard.fleet_api.schema.node import MarkView
from nodeguard.fleet_api.schema.status import IncidentSummary
from nodeguard.model.diagnosis import Guidance
from nodeguard.model.finding import Action, Health
from nodeguard.model.hardware import Hardware
from nodeguard.model.incident import ClearAnswer, FalseAlarm, IncidentState, WriteState


class SymptomView(Struct, frozen=True):
    """A finding of an incident, with the evidence of the agent. evidence_omitted: number of further
    pieces.
    """

    check: str
    target: str
    health: Health
    message: str
    evidence: tuple[str, ...]
    evidence_omitted: int = 0


class IncidentView(Struct, frozen=True):
    """An incident in full.

    resource: the failed target. scope: the excluded work, empty for none. component: the hardware in the
    target. cause: the check that explains most symptoms; fault_class: its class. last_transition: of the
    state. occurrences: number of times it opened. reason: of its state. marks: its marks with their
    waits; mark: the most severe that is in effect for it, as last recorded. acknowledged: the operator.
    clear_request: the operator and the time; clear_result: `waiting`, `done`, `partly`, `refused`, None
    where it is not known; clear_message: the answer of the node's agent. false_alarm: the latest
    statement that it was no fault, which may be withdrawn; None for none. until, seconds_left: as of
    IncidentSummary. jobs: the jobs on its nodes, as far as they were read; jobs_omitted: number of
    further ones. symptoms_omitted: how many more symptoms there were than the listed ones, at the time of
    `message`. injected: whether an operator injected the fault. hardware: of the GPU, as last known; None
    for another target. how: commands that carry out the action, in their order; empty if there are none.
    write: why a requested mark, or its removal, is not on its object; None if it is. guidance: of a
    degraded domain, see DomainView.
    """

    version: Literal[1]
    at: str
    name: str
    node: str
    domain: str
    resource: str
    scope: str
    component: str
    hardware: Hardware | None
    cause: str
    fault_class: str
    health: Health
    action: Action
    state: IncidentState
    since: str
    age: float
    last_transition: str
    last_transition_age: float
    resolved_at: str
    occurrences: int
    message: str
    reason: str
    symptoms: tuple[SymptomView, ...]
    marks: tuple[MarkView, ...]
    acknowledged: str
    clear_request: str
    clear_result: ClearAnswer | None = None
    clear_message: str = ""
    false_alarm: FalseAlarm | None = None
    until: str = ""
    seconds_left: float = 0.0
    symptoms_omitted: int = 0
    jobs: tuple[str, ...] = ()
    jobs_omitted: int = 0
    injected: bool = False
    how: tuple[str, ...] = ()
    write: WriteState | None = None
    mark: str | None = None
    guidance: Guidance | None = None


class IncidentList(Struct, frozen=True):
    """Incidents, worst first. omitted: number of incidents above the limit of a response."""

    version: Literal[1]
    at: str
    incidents: tuple[IncidentSummary, ...]
    omitted: int
