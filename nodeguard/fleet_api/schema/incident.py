"""What people are told of incidents, as the API's JSON has it: see forms."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from nodeguard.fleet_api.schema.node import MarkView
from nodeguard.fleet_api.schema.status import IncidentSummary
from nodeguard.model.finding import Action, Health
from nodeguard.model.incident import ClearAnswer, IncidentState


class SymptomView(Struct, frozen=True):
    """A finding that an incident rests on, in the machine's own words."""

    check: str
    target: str
    health: Health
    message: str
    evidence: tuple[str, ...]


class IncidentView(Struct, frozen=True):
    """Everything of one incident.

    resource: the slot that failed. scope: what is kept from work, empty for nothing. part: what sits in the
    slot. cause: the check that tells most; word: its class. changed, resolved: moments. times: how often it
    has opened. detail: why it is in its state. marks: that stand for it, and what each waits for.
    acknowledged: by whom. clear: who asked to clear it, and when; answer: what became of that (`waiting`,
    `done`, `partly`, `refused`), None where it is not known or nobody asked; answer_says: the words of the
    node's agent. until, left: as of an incident in short.
    """

    version: Literal[1]
    at: str
    name: str
    node: str
    domain: str
    resource: str
    scope: str
    component: str
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
    until: str = ""
    seconds_left: float = 0.0


class IncidentList(Struct, frozen=True):
    """Incidents, worst first. more: how many are left out."""

    version: Literal[1]
    at: str
    incidents: tuple[IncidentSummary, ...]
    omitted: int
