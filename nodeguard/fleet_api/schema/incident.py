"""Schema of incidents: one incident in full, and the list of incidents."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from nodeguard.fleet_api.schema.incident_summary import IncidentSummary
from nodeguard.fleet_api.schema.job import JobOutcomeView, RejectedPodsView
from nodeguard.fleet_api.schema.node import MarkView
from nodeguard.model.diagnosis import Guidance
from nodeguard.model.finding import Action, Health
from nodeguard.model.hardware import Hardware
from nodeguard.model.incident import ClearAnswer, FalseAlarm, IncidentState, WriteState


class SymptomView(Struct, frozen=True):
    """A finding of an incident, with the evidence of the agent."""

    check: str
    target: str
    health: Health
    message: str
    evidence: tuple[str, ...]
    evidence_omitted: int = 0
    """Number of further pieces of evidence."""


class IncidentView(Struct, frozen=True):
    """An incident in full."""

    version: Literal[1]
    at: str
    name: str
    """Name of the incident."""
    node: str
    """Name of the node; empty for the incident of a domain, a check or a job."""
    domain: str
    resource: str
    """The failed target; `check/NAME` for a suppressed check, `job/NAME` for the start of a job."""
    scope: str
    """What is, or would be, kept from work; empty for none."""
    component: str
    """The hardware in the target."""
    hardware: Hardware | None
    """Names of the GPU, as last known; null for another target."""
    cause: str
    """The check that explains most symptoms."""
    fault_class: str
    """Fault class of the cause."""
    health: Health
    action: Action
    state: IncidentState
    since: str
    age: float
    last_transition: str
    """When its state changed last."""
    last_transition_age: float
    resolved_at: str
    """When it ended; empty before."""
    occurrences: int
    """Number of times it opened."""
    message: str
    """The problem."""
    reason: str
    """Why it is in this state."""
    symptoms: tuple[SymptomView, ...]
    """Its findings."""
    marks: tuple[MarkView, ...]
    """Its marks, each with what its release waits for."""
    acknowledged: str
    """The operator who acknowledged it; empty for none."""
    clear_request: str
    """Who asked to clear it, and when; empty for none."""
    clear_result: ClearAnswer | None = None
    """Result of the clear; null where it is not known."""
    clear_message: str = ""
    """The answer of the node's agent."""
    false_alarm: FalseAlarm | None = None
    """The latest statement that it was no fault, which may be withdrawn; null for none."""
    until: str = ""
    """End of the grace period of a pending incident; empty for others."""
    seconds_left: float = 0.0
    symptoms_omitted: int = 0
    """Number of symptoms above the listed ones, at the time of `message`."""
    jobs: tuple[str, ...] = ()
    """The jobs on its nodes, as far as they were read."""
    jobs_omitted: int = 0
    """Number of further jobs."""
    job_outcomes: tuple[JobOutcomeView, ...] = ()
    """What drains do with the pods of these jobs, at most 64; nothing else is known of a job without one."""
    rejected_pods: RejectedPodsView | None = None
    """Pods that the kubelet of its node rejected while it is open and fatal; null for none that is known."""
    injected: bool = False
    """Whether an operator injected the fault."""
    how: tuple[str, ...] = ()
    """Commands that carry out the action, in their order; empty if there are none."""
    remedy: str = ""
    """What to do, as its check states; empty if the action is another one, or the check is not known."""
    write: WriteState | None = None
    """Why a requested mark, or its removal, is not on its object; null if it is."""
    mark: str | None = None
    """The most severe mark that is in effect for it, as last recorded."""
    guidance: Guidance | None = None
    """What people do about a degraded domain or a suppressed check; null for other incidents."""


class IncidentList(Struct, frozen=True):
    """Incidents, worst first."""

    version: Literal[1]
    at: str
    incidents: tuple[IncidentSummary, ...]
    """The incidents."""
    omitted: int
    """Number of incidents above the limit of a response."""
