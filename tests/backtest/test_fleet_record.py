"""The record of a fleet: which occurrence of an incident an operator's statement is about."""

from __future__ import annotations

import msgspec
import pytest

from nodeguard.backtest.fleet_record import FleetRecord, fleet_record
from nodeguard.fleet.state.history_events import HistoryEvent, HistoryNote, NoteKind
from nodeguard.model.finding import Health
from nodeguard.model.incident import FalseAlarm, Incident, IncidentState, OperatorDecision
from nodeguard.model.instant import rfc3339

START = 1_700_000_000.0


def incident(began: float, health: Health = Health.FATAL, *, injected: bool = False) -> HistoryEvent:
    content = Incident(
        "i", "gpu-1", "uid-1", "gpu/a", "gpu-lost", health, IncidentState.RESOLVED, began, began,
        resolved_at=began + 60.0, injected=injected,
    )  # fmt: skip
    return HistoryNote(began, NoteKind.INCIDENT, "i", "gpu-1", msgspec.json.encode(content).decode())


def decision(at: float, statement: FalseAlarm | None, name: str = "i") -> HistoryEvent:
    text = msgspec.json.encode(OperatorDecision(name, "ann", false_alarm=statement)).decode()
    return HistoryNote(at, NoteKind.DECISION, name, "", text)


def begins(record: FleetRecord) -> tuple[list[float], list[float]]:
    """Return the begin of each fault and of each false alarm, in seconds from the start."""
    faults, false_alarms = (
        [fault.began - START for fault in faults] for faults in (record.faults, record.false_alarms)
    )
    return faults, false_alarms


OCCURRENCES = (incident(START + 0.5), incident(START + 100.0), incident(START + 200.0))


@pytest.mark.parametrize(
    ("decided_at", "stated_at", "expected"),
    [
        (150.0, 150.0, 100.0),
        (0.9, 0.9, 0.5),  # the text of a time has whole seconds
        (500.0, 150.0, 100.0),  # an aggregator that starts records all decisions
        (150.0, None, 100.0),
        (150.0, 900.0, 100.0),  # a clock ahead
        (150.0, -900.0, 100.0),  # before all occurrences: the latest one when it was recorded
    ],
)
def test_a_statement_is_about_the_latest_occurrence_at_its_time(
    decided_at: float, stated_at: float | None, expected: float
) -> None:
    time = "" if stated_at is None else rfc3339(START + stated_at)
    record = fleet_record([*OCCURRENCES, decision(START + decided_at, FalseAlarm("ann", time))])
    faults, false_alarms = begins(record)
    assert false_alarms == [expected]
    assert faults == [began for began in (0.5, 100.0, 200.0) if began != expected]


def test_a_repeated_statement_is_one_false_alarm() -> None:
    statement = FalseAlarm("ann", rfc3339(START + 150.0))
    notes = (decision(START + at, statement) for at in (150.0, 170.0, 900.0))
    assert begins(fleet_record([*OCCURRENCES, *notes]))[1] == [100.0]


def test_the_latest_statement_about_an_occurrence_counts() -> None:
    def stated(at: float, *, withdrawn: bool = False) -> HistoryEvent:
        return decision(START + at, FalseAlarm("ann", rfc3339(START + at), withdrawn=withdrawn))

    recorded, withdrawn = stated(150.0), stated(160.0, withdrawn=True)
    assert begins(fleet_record([*OCCURRENCES, recorded, withdrawn])) == ([0.5, 100.0, 200.0], [])
    assert begins(fleet_record([*OCCURRENCES, recorded, withdrawn, stated(170.0)]))[1] == [100.0]
    # One about a later occurrence leaves the earlier false alarm.
    assert begins(fleet_record([*OCCURRENCES, recorded, stated(250.0, withdrawn=True)]))[1] == [100.0]


@pytest.mark.parametrize("stated_at", [150.0, None])
def test_a_statement_about_a_trimmed_occurrence_leaves_a_later_fault(stated_at: float | None) -> None:
    time = "" if stated_at is None else rfc3339(START + stated_at)
    events = [decision(START + 150.0, FalseAlarm("ann", time)), incident(START + 20.0 * 86_400.0)]
    assert begins(fleet_record(events)) == ([20.0 * 86_400.0], [])


def test_a_decision_without_a_statement_changes_nothing() -> None:
    record = fleet_record([*OCCURRENCES, decision(START + 150.0, None)])
    assert begins(record) == ([0.5, 100.0, 200.0], [])
    unknown = fleet_record([*OCCURRENCES, decision(START + 150.0, FalseAlarm("ann"), "other")])
    assert begins(unknown) == ([0.5, 100.0, 200.0], [])


def test_a_warning_may_be_a_false_alarm_and_a_rehearsal_is_none() -> None:
    statement = decision(START + 10.0, FalseAlarm("ann"))
    assert begins(fleet_record([incident(START, Health.WARNING), statement])) == ([], [0.0])
    rehearsal = fleet_record([incident(START, injected=True), statement])
    assert (begins(rehearsal), rehearsal.injected) == (([], []), 1)
