"""What people are told of incidents, as the API's JSON has it: see forms."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from nodeguard.fleet_api.forms import IncidentLine
from nodeguard.fleet_api.node_forms import MarkTold
from nodeguard.model.finding import Action, Health
from nodeguard.model.incident import ClearAnswer, State


class SymptomTold(Struct, frozen=True):
    """A finding that an incident rests on, in the machine's own words."""

    check: str
    target: str
    health: Health
    message: str
    evidence: tuple[str, ...]


class IncidentPage(Struct, frozen=True):
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
    part: str
    cause: str
    word: str
    health: Health
    action: Action
    state: State
    since: str
    age: float
    changed: str
    changed_age: float
    resolved: str
    times: int
    message: str
    detail: str
    symptoms: tuple[SymptomTold, ...]
    marks: tuple[MarkTold, ...]
    acknowledged: str
    clear: str
    answer: ClearAnswer | None = None
    answer_says: str = ""
    until: str = ""
    left: float = 0.0


class IncidentList(Struct, frozen=True):
    """Incidents, worst first. more: how many are left out."""

    version: Literal[1]
    at: str
    incidents: tuple[IncidentLine, ...]
    more: int
