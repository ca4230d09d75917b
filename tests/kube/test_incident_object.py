"""NodeIncident objects: conditions, generations, and the operator's clear."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from nodeguard.kube.incident_object import (
    MAX_JOBS,
    MAX_NAME,
    IncidentStatus,
    clear_spec,
    decode_incident,
    false_alarm_spec,
    forget_decisions,
    forget_spec,
    observed_status,
    status_patch,
)
from nodeguard.kube.incident_projection import incident_status, to_incident
from nodeguard.model.finding import Action, Health
from nodeguard.model.incident import DiagnosisRecord, FalseAlarm, IncidentState, OperatorDecision
from nodeguard.model.instant import rfc3339
from nodeguard.model.mark import Mark
from tests.kube.incident_writing import LOST, NOW

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


@pytest.mark.parametrize(
    ("state", "detail", "message"),
    [
        (IncidentState.OPEN, "", "No mark is requested."),
        (
            IncidentState.OPEN,
            "reported as fabric/p0, which is degraded",
            "No mark: reported as fabric/p0, which is degraded.",
        ),
        (IncidentState.DRY_RUN, "would quarantine node gpu-7", "Dry run: would quarantine node gpu-7."),
        (
            IncidentState.WITHHELD,
            "fleet budget has reached its limit: 2 of 2 nodes",
            "Node gpu-7 is not marked: fleet budget has reached its limit: 2 of 2 nodes.",
        ),
        (IncidentState.MARKED, "", "New work is kept off node gpu-7."),
        (
            IncidentState.MARKED,
            "waits for gpu-lost to pass with fresh data",
            "New work is kept off node gpu-7; waits for gpu-lost to pass with fresh data.",
        ),
        (
            IncidentState.RECOVERING,
            "the check passes; the soak period runs",
            "New work is kept off node gpu-7: the check passes; the soak period runs.",
        ),
        (IncidentState.RESOLVED, "", "No mark: the fault is over."),
        (IncidentState.RESOLVED, "its Node is gone", "No mark: its Node is gone."),
    ],
)
def test_the_condition_of_the_mark_says_what_it_is_or_why_there_is_none(
    state: IncidentState, detail: str, message: str
) -> None:
    incident = replace(LOST, state=state, detail=detail)
    [marked] = (item for item in incident_status(incident).conditions if item.type == "Marked")
    assert marked.message == message


def test_the_mark_of_a_domain_and_a_suppressed_check_have_a_message() -> None:
    domain = replace(
        LOST, node="", uid="", health=Health.SUSPECT, scope="16 nodes of fabric/p0/l3", detail=""
    )
    check = replace(LOST, node="", uid="", state=IncidentState.OPEN, scope="", detail="it marks nothing new")
    messages = [incident_status(incident).conditions[1].message for incident in (domain, check)]
    assert messages == ["New gang work is kept off 16 nodes of fabric/p0/l3.", "It marks nothing new."]


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


def test_another_replica_writes_an_incident_again_only_after_a_transition() -> None:
    written = observed_status(incident_status(LOST), IncidentStatus(), 1)
    seen_later = replace(LOST, first_seen=LOST.first_seen + 1.0, last_transition=NOW)
    assert observed_status(incident_status(seen_later), written, 1) == written
    worse = observed_status(incident_status(replace(seen_later, action=Action.CONTACT_SUPPORT)), written, 1)
    assert worse.last_transition_time == rfc3339(NOW)
    assert worse.first_seen == rfc3339(LOST.first_seen), "the begin of an open incident stays"
    over = replace(seen_later, state=IncidentState.RESOLVED, resolved_at=NOW)
    resolved = observed_status(incident_status(over), written, 1)
    assert resolved.first_seen == rfc3339(LOST.first_seen)
    first_here = observed_status(incident_status(seen_later), resolved, 1)
    assert first_here.first_seen == rfc3339(seen_later.first_seen), "another one, not seen here before"
    again = observed_status(incident_status(replace(seen_later, occurrences=2)), written, 1)
    assert again.first_seen == rfc3339(seen_later.first_seen)


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


@pytest.mark.parametrize(
    "statement",
    [
        FalseAlarm("ada"),
        FalseAlarm("ada", RESOLVED),
        FalseAlarm("ada", RESOLVED, "a bad sensor"),
        FalseAlarm("ada", RESOLVED, withdrawn=True),
    ],
)
def test_a_false_alarm_is_read_as_it_is_written(statement: FalseAlarm) -> None:
    metadata = {"name": "one", "uid": "u", "resourceVersion": "7"}
    # A merge patch removes what is null.
    patch = {
        name: value for name, value in false_alarm_spec(statement)["falseAlarm"].items() if value is not None
    }
    content = {"metadata": metadata, "spec": {"falseAlarm": patch}}
    observed = decode_incident(msgspec.json.encode(content))
    assert observed.decision == OperatorDecision("one", false_alarm=statement)


def test_a_status_describes_its_incident() -> None:
    status = incident_status(LOST)
    body = {"metadata": {"name": LOST.name, "uid": "u", "resourceVersion": "7"}, "status": status}
    assert to_incident(decode_incident(msgspec.json.encode(body))) == LOST


def test_a_status_names_jobs_within_the_limits_of_an_object() -> None:
    incident = replace(LOST, jobs=("a/b",), jobs_omitted=7)
    status = incident_status(incident)
    body = {"metadata": {"name": LOST.name, "uid": "u", "resourceVersion": "7"}, "status": status}
    assert to_incident(decode_incident(msgspec.json.encode(body))) == incident
    many = incident_status(replace(LOST, jobs=tuple(f"a/{'b' * 300}" for _ in range(100))))
    assert (len(many.jobs), {len(job) for job in many.jobs}) == (MAX_JOBS, {MAX_NAME})


@pytest.mark.parametrize("mark", [None, *Mark])
def test_the_mark_of_an_incident_survives_a_restart(mark: Mark | None) -> None:
    status = incident_status(replace(LOST, mark=mark))
    content = {"metadata": {"name": LOST.name, "uid": "u", "resourceVersion": "1"}, "status": status}
    restored = to_incident(decode_incident(msgspec.json.encode(content)))
    assert restored is not None
    assert restored.mark == mark


def test_an_injected_fault_is_one_in_the_object_and_after_a_restart() -> None:
    status = incident_status(replace(LOST, injected=True))
    assert status.injected
    raw = {"metadata": {"name": LOST.name, "uid": "u", "resourceVersion": "1"}, "status": status}
    restored = to_incident(decode_incident(msgspec.json.encode(raw)))
    assert restored is not None
    assert restored.injected
    assert status_patch(incident_status(LOST))["status"]["injected"] is None


def test_a_status_has_what_a_new_aggregator_needs() -> None:
    for diagnosis in (
        DiagnosisRecord(("link-down", "link"), 600.0, 12, NOW, NOW - 60.0),
        DiagnosisRecord(),
        None,
    ):
        incident = replace(LOST, diagnosis=diagnosis)
        body = {
            "metadata": {"name": LOST.name, "uid": "u", "resourceVersion": "7"},
            "status": incident_status(incident),
        }
        assert to_incident(decode_incident(msgspec.json.encode(body))) == incident


def test_the_end_of_a_recovery_is_removed_from_an_object() -> None:
    recovering = incident_status(replace(LOST, diagnosis=DiagnosisRecord(("link",), recovering_since=NOW)))
    shown = incident_status(replace(LOST, diagnosis=DiagnosisRecord(("link",))))
    assert status_patch(recovering)["status"]["diagnosis"]["recoveringSince"] == "2027-01-15T08:00:00Z"
    assert status_patch(shown)["status"]["diagnosis"]["recoveringSince"] is None


@pytest.mark.parametrize(
    ("stated_at", "is_kept"),
    [("", False), (rfc3339(1000.0), False), (rfc3339(1001.0), True), (rfc3339(1061.0), False)],
)
def test_an_incident_that_opens_again_keeps_decisions_since_then(stated_at: str, *, is_kept: bool) -> None:
    statement = FalseAlarm("ada", stated_at)
    decision = OperatorDecision("one", "ada", f"ada at {stated_at}", false_alarm=statement)
    current = forget_decisions(decision, 1000.0, 1060.0)
    assert current == (decision if is_kept else OperatorDecision("one", "ada"))
    assert forget_spec(decision, current) == ({} if is_kept else {"clear": None, "falseAlarm": None})
    assert forget_spec(decision, replace(decision, clear="")) == {"clear": None}
