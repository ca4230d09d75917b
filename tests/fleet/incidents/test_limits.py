from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nodeguard.fleet.incidents.limits import (
    MAX_PER_NODE,
    asks_for_mark,
    limit_incidents,
    limit_without_mark,
    surplus,
)
from nodeguard.fleet_api.node import describe_node
from nodeguard.fleet_api.schema.incident_summary import OmittedIncidents
from nodeguard.fleet_api.service_state import ServiceState
from nodeguard.fleet_api.status import fleet_status
from nodeguard.model.finding import Health
from nodeguard.model.incident import GRANTED_STATES, Incident, IncidentState
from nodeguard.model.policy import Mode
from nodeguard.wire.report import ReportedEvidence, ReportedFinding
from tests.fleet.scene import AT_ONCE, Fleet, finding

NOW = 1000.0
LEADER = ServiceState("replica-0", is_leader=True, started=9_000.0)


def age(recorded_at: float) -> float:
    return NOW - recorded_at


made = st.builds(
    Incident,
    name=st.from_regex(r"\A[a-z]{1,3}\Z"), node=st.just("node-1"), uid=st.just("uid-1"), target=st.just("r"),
    cause=st.just("c"), health=st.sampled_from([Health.WARNING, Health.SUSPECT, Health.FATAL]),
    state=st.sampled_from(list(IncidentState)), first_seen=st.floats(0.0, NOW), last_transition=st.just(0.0),
    resolved_at=st.floats(0.0, NOW),
)  # fmt: skip
some = st.lists(made, max_size=20).map(lambda incidents: {incident.name: incident for incident in incidents})


@pytest.mark.slow
@given(some, some, st.integers(0, 20))
def test_the_limit_is_respected_and_open_incidents_stay(
    before: dict[str, Incident], new: dict[str, Incident], most: int
) -> None:
    after = {**new, **before}
    fewer = limit_without_mark(most)
    recorded, left_out = limit_incidents(before, after, most, fewer, age)
    gone = after.keys() - recorded.keys()
    assert len(recorded) <= max(most, len(before))
    assert len(after) <= fewer or len(recorded) >= min(fewer, len(after))
    assert left_out.keys() == gone - before.keys()
    assert all(NOW - before[name].resolved_at >= 60.0 for name in gone & before.keys())
    assert all(before[name].state == IncidentState.RESOLVED for name in gone & before.keys())
    new_names = recorded.keys() - before.keys()
    for name in left_out:
        assert all(not _weighs_less(recorded[other], after[name]) for other in new_names)


@pytest.mark.slow
@given(some, some, st.integers(0, 20))
def test_incidents_without_a_mark_leave_room_for_those_that_ask_for_one(
    before: dict[str, Incident], new: dict[str, Incident], most: int
) -> None:
    after = {**new, **before}
    recorded, left_out = limit_incidents(before, after, most, limit_without_mark(most), age)
    admitted = [recorded[name] for name in recorded.keys() - before.keys()]
    if not all(asks_for_mark(incident) for incident in admitted):
        assert len(recorded) <= limit_without_mark(most)
    if any(asks_for_mark(incident) for incident in left_out.values()):
        assert len(recorded) >= most
        assert all(asks_for_mark(incident) for incident in admitted)


def _weighs_less(incident: Incident, other: Incident) -> bool:
    marked = {*GRANTED_STATES, IncidentState.RECOVERING}
    return incident.health.rank < other.health.rank and (incident.state in marked) <= (other.state in marked)


@pytest.mark.slow
@given(some, st.integers(0, 20))
def test_incidents_resolved_longest_ago_are_surplus(every: dict[str, Incident], most: int) -> None:
    gone = surplus(every.values(), most, age)
    over = [
        incident
        for incident in every.values()
        if incident.state == IncidentState.RESOLVED and NOW - incident.resolved_at >= 60.0
    ]
    assert len(gone) == min(len(over), max(0, len(every) - most))
    latest = max((every[name].resolved_at for name in gone), default=0.0)
    assert all(incident.resolved_at >= latest for incident in over if incident.name not in gone)


TARGETS = count()

# Nothing is written, so that no incident waits for its mark.
OBSERVED = replace(AT_ONCE, mode=Mode.OBSERVE)


def ever_new(many: int) -> list[ReportedFinding]:
    return [finding("made-up", f"fs:/{next(TARGETS)}") for _ in range(many)]


@pytest.mark.slow
def test_the_incidents_of_a_node_with_ever_new_targets_are_limited() -> None:
    fleet = Fleet(8, OBSERVED)
    fleet.report(1, finding())
    for _ in range(40):
        fleet.report(0, *ever_new(100))
        fleet.after(0.5)
        plan = fleet.plan()
        assert len(plan.incidents) <= 2 * MAX_PER_NODE
    incidents = fleet.planner.tracker.recorded.by_uid
    assert len(incidents["uid-0"]) == MAX_PER_NODE
    assert [incident.cause for incident in incidents["uid-1"].values()] == ["gpu-lost"]
    assert fleet.planner.tracker.recorded.left_out.keys() == {"uid-0"}
    assert fleet.planner.tracker.recorded.left_out_total == 40 * 100 - MAX_PER_NODE

    shown = fleet_status(fleet.planner, LEADER, fleet.now)
    assert shown.incidents_omitted == OmittedIncidents(100, 1, ("node-0",))
    page = describe_node(fleet.planner, LEADER, "node-0", fleet.now)
    assert page is not None
    assert page.incidents_omitted == 100

    # What is still found finds room once what was resolved is a minute old.
    for _ in range(65):
        fleet.after(1.0)
        fleet.plan()
    latest = {active.target for active in fleet.reports["uid-0"].findings}
    assert {incident.target for incident in incidents["uid-0"].values() if incident.is_open} == latest
    assert fleet.planner.tracker.recorded.left_out == {}
    assert len(incidents["uid-0"]) <= MAX_PER_NODE


def test_the_incidents_resolved_longest_ago_are_removed_first() -> None:
    fleet = Fleet(40, OBSERVED)
    fleet.planner.tracker.recorded.max_total = 50
    for number in range(40):
        fleet.report(number, *ever_new(1))
    fleet.plan()
    assert len(fleet.planner.all_incidents()) == 40
    for number in range(40):
        fleet.report(number, *ever_new(1))
    fleet.plan()
    assert len(fleet.planner.all_incidents()) == 50
    assert len(fleet.planner.tracker.recorded.left_out) == 30
    for _ in range(3):
        fleet.after(31.0)
        fleet.plan()
    every = fleet.planner.all_incidents()
    assert len(every) <= 50
    assert sum(incident.is_open for incident in every) == 40
    assert fleet.planner.tracker.recorded.left_out == {}


def warnings(many: int) -> list[ReportedFinding]:
    return [finding("gpu-hot", f"fs:/{at}", health=Health.WARNING) for at in range(many)]


def test_warnings_of_the_fleet_leave_room_for_the_incident_of_a_new_mark() -> None:
    fleet = Fleet(30)
    fleet.planner.tracker.recorded.max_total = 20
    for number in range(25):
        fleet.report(number, *warnings(1))
    fleet.carry_out()
    assert len(fleet.planner.all_incidents()) == 15
    assert len(fleet.planner.tracker.recorded.left_out) == 10

    fleet.report(29, finding())
    plan = fleet.carry_out()
    assert [(event.node, event.reason) for event in plan.events] == [("node-29", "NodeguardMarked")]
    assert [incident.state for incident in fleet.planner.tracker.recorded.by_uid["uid-29"].values()] == [
        IncidentState.MARKED
    ]
    assert "uid-29" not in fleet.planner.tracker.recorded.left_out

    # What is recorded stays: nothing changes while the reports do not.
    for _ in range(5):
        fleet.after(120.0)
        plan = fleet.carry_out()
        assert (plan.incidents, plan.events) == ((), ())


def test_warnings_of_a_node_leave_room_for_the_incident_of_its_mark() -> None:
    fleet = Fleet(8)
    fleet.report(0, *warnings(MAX_PER_NODE))
    fleet.carry_out()
    assert len(fleet.planner.tracker.recorded.by_uid["uid-0"]) == limit_without_mark(MAX_PER_NODE)

    fleet.report(0, finding(), *warnings(MAX_PER_NODE - 1))
    plan = fleet.carry_out()
    assert "NodeguardMarked" in {event.reason for event in plan.events}
    incidents = fleet.planner.tracker.recorded.by_uid["uid-0"].values()
    assert [incident.cause for incident in incidents if incident.state == IncidentState.MARKED] == [
        "gpu-lost"
    ]


def test_a_left_out_incident_that_ends_is_not_left_out_any_more() -> None:
    fleet = Fleet(4)
    fleet.planner.tracker.recorded.max_total = 2
    for number in range(4):
        fleet.report(number, *warnings(1))
    fleet.carry_out()
    assert len(fleet.planner.tracker.recorded.left_out) == 3
    for number in range(4):
        fleet.report(number)
    fleet.carry_out()
    assert fleet.planner.tracker.recorded.left_out == {}
    assert fleet_status(fleet.planner, LEADER, fleet.now).incidents_omitted == OmittedIncidents(0, 0, ())


def test_a_left_out_warning_is_recorded_when_another_one_was_resolved_long_ago() -> None:
    fleet = Fleet(4)
    fleet.planner.tracker.recorded.max_total = 4
    for number in range(4):
        fleet.report(number, *warnings(1))
    fleet.carry_out()
    [left_out] = fleet.planner.tracker.recorded.left_out
    for number in range(4):
        if f"uid-{number}" != left_out:
            fleet.report(number)
    fleet.carry_out()
    for _ in range(3):
        fleet.after(31.0)
        fleet.carry_out()
    assert [incident.state for incident in fleet.planner.tracker.recorded.by_uid[left_out].values()] == [
        IncidentState.OPEN
    ]
    assert fleet.planner.tracker.recorded.left_out == {}


def test_nodes_without_room_are_not_evaluated_again_until_there_is_some() -> None:
    fleet = Fleet(8)
    fleet.planner.tracker.recorded.max_total = 4
    for number in range(8):
        fleet.report(number, *warnings(1))
    fleet.carry_out()
    assert len(fleet.planner.all_incidents()) == 3
    fleet.planner.tick(fleet.now)
    assert fleet.planner.tracker.touched == set()


def test_texts_of_an_incident_are_bounded() -> None:
    fleet = Fleet(1)
    long = "x" * 2048
    fleet.report(0, finding(message=long, evidence=tuple(ReportedEvidence("nvml", long) for _ in range(50))))
    fleet.carry_out()
    [incident] = fleet.planner.tracker.recorded.by_uid["uid-0"].values()
    assert len(incident.message) == 512
    assert [len(line) for symptom in incident.symptoms for line in symptom.evidence] == [512] * 3
