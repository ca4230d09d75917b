"""NodeIncident objects: conditions, generations, and the operator's clear."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from nodeguard.kube.incident_object import (
    IncidentStatus,
    clear_spec,
    decode_incident,
    incident_status,
    observed_status,
    to_incident,
)
from nodeguard.model.incident import IncidentState
from tests.kube.test_incident_writer import LOST, NOW

BEGAN, CHANGED, RESOLVED = "2027-01-15T07:59:00Z", "2027-01-15T07:59:30Z", "2027-01-15T08:00:00Z"


def conditions(status: IncidentStatus) -> dict[str, tuple[str, str, str]]:
    return {
        condition.type: (condition.status, condition.reason, condition.last_transition_time)
        for condition in status.conditions
    }


@pytest.mark.parametrize(
    ("state", "active", "marked"),
    [
        (IncidentState.OPEN, ("True", "Open", BEGAN), ("False", "Open", CHANGED)),
        (IncidentState.WITHHELD, ("True", "Withheld", BEGAN), ("False", "Withheld", CHANGED)),
        (IncidentState.MARKED, ("True", "Marked", BEGAN), ("True", "Marked", CHANGED)),
        (IncidentState.RECOVERING, ("True", "Recovering", BEGAN), ("True", "Recovering", CHANGED)),
        (IncidentState.RESOLVED, ("False", "Resolved", RESOLVED), ("False", "Resolved", CHANGED)),
    ],
)
def test_conditions_follow_the_state(
    state: IncidentState, active: tuple[str, str, str], marked: tuple[str, str, str]
) -> None:
    incident = replace(LOST, state=state, resolved_at=NOW if state == IncidentState.RESOLVED else 0.0)
    assert conditions(incident_status(incident)) == {"Active": active, "Marked": marked}


def test_a_condition_keeps_its_time_while_its_status_stays_the_same() -> None:
    marked = observed_status(incident_status(LOST), IncidentStatus(), 1)
    later = replace(LOST, state=IncidentState.RECOVERING, last_transition=NOW)
    recovering = observed_status(incident_status(later), marked, 2)
    assert conditions(recovering)["Marked"] == ("True", "Recovering", CHANGED)
    resolved = replace(later, state=IncidentState.RESOLVED, resolved_at=NOW)
    assert conditions(observed_status(incident_status(resolved), recovering, 2))["Marked"] == (
        "False", "Resolved", RESOLVED,
    )  # fmt: skip
    assert recovering.observed_generation == 2
    assert {condition.observed_generation for condition in recovering.conditions} == {2}


@pytest.mark.parametrize(
    ("spec", "clear"),
    [
        ({}, ""),
        ({"clear": {"by": "ada"}}, "ada"),
        (clear_spec("ada", RESOLVED), f"ada at {RESOLVED}"),
    ],
)
def test_a_clear_is_distinct_by_operator_and_time(spec: dict[str, object], clear: str) -> None:
    metadata = {"name": "one", "uid": "u", "resourceVersion": "7", "generation": 3}
    observed = decode_incident(msgspec.json.encode({"metadata": metadata, "spec": spec}))
    assert (observed.decision.clear, observed.generation) == (clear, 3)


def test_a_status_describes_its_incident() -> None:
    status = incident_status(LOST)
    body = {"metadata": {"name": LOST.name, "uid": "u", "resourceVersion": "7"}, "status": status}
    assert to_incident(decode_incident(msgspec.json.encode(body))) == LOST
