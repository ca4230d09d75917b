"""The Events of a Node follow a fault from its mark to its end."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from nodeguard.fleet.incidents.events import event_of, mark_message, update_incident
from nodeguard.model.finding import Health
from nodeguard.model.hardware import Hardware
from nodeguard.model.incident import Incident, IncidentState
from nodeguard.model.policy import GracePeriods, Mode, SoakPeriod
from tests.fleet.scene import AT_ONCE, Fleet, finding


def test_the_events_of_a_fault_describe_its_effect() -> None:
    fleet = Fleet(2, replace(AT_ONCE, soak=SoakPeriod(10.0, 10.0)))
    fleet.report(0, finding(message="GPU 0000:3b:00 is lost"))
    events = [*fleet.carry_out().events]
    fleet.report(0)
    events += fleet.carry_out().events
    fleet.after(11.0)
    events += fleet.carry_out().events
    events += fleet.carry_out().events
    prefix, name = "gpu-lost on GPU 0000:3b:00: GPU 0000:3b:00 is lost; ", events[0].incident
    assert [(event.reason, event.message) for event in events] == [
        ("NodeguardMarked", f"{prefix}new work is kept off node node-0; {TO_DO} ({name})"),
        ("NodeguardRecovering", f"{prefix}node node-0: the check passes; the soak period runs ({name})"),
        ("NodeguardResolved", f"{prefix}the fault is over ({name})"),
    ]


TO_DO = "to do: reset the GPU"
SUSPECT = {"health": Health.SUSPECT, "message": "GPU 0000:3b:00 is slow"}
FATAL = {"health": Health.FATAL, "message": "GPU 0000:3b:00 is lost"}


def rise(fleet: Fleet, **after: Any) -> list[tuple[str, str]]:
    """Return the Events of an incident with a mark that becomes fatal, without the first Event."""
    fleet.report(0, finding(**SUSPECT))
    [first] = fleet.carry_out().events
    for name, value in after.items():
        setattr(fleet.planner, name, value)
    fleet.after(1.0)
    fleet.report(0, finding(**FATAL))
    events = [*fleet.carry_out().events]
    for _ in range(3):
        fleet.after(30.0)
        events += fleet.carry_out().events
    prefix, suffix = "gpu-lost on GPU 0000:3b:00: GPU 0000:3b:00 is lost; ", f" ({first.incident})"
    return [(event.reason, event.message.removeprefix(prefix).removesuffix(suffix)) for event in events]


ROSE = "health changed from suspect to fatal"
ROSE_TO_SUSPECT = "health changed from warning to suspect"


def test_an_open_incident_that_becomes_fatal_has_one_event() -> None:
    assert rise(Fleet(2)) == [("NodeguardMarked", f"{ROSE}; new work is kept off node node-0; {TO_DO}")]


def test_a_dry_run_that_becomes_fatal_has_one_event() -> None:
    assert rise(Fleet(2, replace(AT_ONCE, mode=Mode.OBSERVE))) == [
        ("NodeguardDryRun", f"{ROSE}; dry run: would quarantine node node-0; {TO_DO}")
    ]


def test_a_dry_run_has_one_event_with_the_reason_of_its_time() -> None:
    fleet = Fleet(2, replace(AT_ONCE, mode=Mode.OBSERVE))
    fleet.planner.paused = "a rollout"
    fleet.report(0, finding())
    events = [*fleet.carry_out().events]
    fleet.planner.paused = ""
    for _ in range(3):
        fleet.after(1.0)
        events += fleet.carry_out().events
    [(reason, message)] = [(event.reason, event.message) for event in events]
    assert (reason, "dry run: would not quarantine node node-0: a rollout" in message) == (
        "NodeguardDryRun",
        True,
    )
    [incident] = fleet.planner.tracker.recorded.by_uid["uid-0"].values()
    assert incident.detail == "would quarantine node node-0"


def test_a_quarantine_in_its_grace_period_is_not_reported_as_set() -> None:
    fleet = Fleet(2, replace(AT_ONCE, grace=GracePeriods(120.0, 0.0, 0.0)))
    suspect = "new gang work is kept off node node-0"
    assert rise(fleet) == [
        ("NodeguardMarked", f"{ROSE}; {suspect}; quarantine is pending; {TO_DO}"),
        ("NodeguardMarked", f"new work is kept off node node-0; {TO_DO}"),
    ]


def test_a_withheld_quarantine_of_a_suspect_node_has_the_reason() -> None:
    fleet = Fleet(2)
    [(reason, message)] = rise(fleet, paused="a rollout")
    assert reason == "NodeguardMarked"
    assert message.startswith(f"{ROSE}; new gang work is kept off node node-0; quarantine is withheld: ")
    assert fleet.taints(0) == ["nodeguard.dev/suspect=gpu-bus"]
    [incident] = fleet.planner.all_incidents()
    assert "New gang work is kept off node node-0; quarantine is withheld: " in mark_message(incident)


def test_a_finding_without_a_mark_that_becomes_worse_has_an_event() -> None:
    before = update_incident(None, incident(Health.WARNING), 1.0)
    after = update_incident(before, incident(Health.SUSPECT), 2.0)
    event = event_of(before, after)
    assert event is not None
    assert (event.reason, event.message) == (
        "NodeguardFinding",
        f"gpu-lost on GPU 0000:3b:00: {ROSE_TO_SUSPECT}; no scheduling change (node-0-gpu)",
    )
    assert event_of(after, update_incident(after, incident(Health.WARNING), 3.0)) is None


def incident(health: Health) -> Incident:
    return Incident(
        name="node-0-gpu", node="node-0", uid="uid-0", target="gpu/0000:3b:00", cause="gpu-lost",
        health=health, state=IncidentState.OPEN, first_seen=1.0, last_transition=0.0,
    )  # fmt: skip


def test_a_gpu_keeps_its_last_known_names_and_a_new_name_is_no_transition() -> None:
    named = replace(incident(Health.FATAL), target="gpu/0000:3b:00", hardware=Hardware(5, "165"))
    before = update_incident(None, named, 1.0)
    assert update_incident(before, replace(named, hardware=None), 2.0) is before
    moved = update_incident(before, replace(named, hardware=Hardware(4, "165")), 2.0)
    assert moved == replace(before, hardware=Hardware(4, "165"))
    event = event_of(None, before)
    assert event is not None
    assert " on GPU 5 (0000:3b:00, serial 165): " in event.message


def test_another_reason_of_the_same_state_is_no_transition() -> None:
    before = update_incident(None, replace(incident(Health.FATAL), detail="gpu-lost to pass"), 1.0)
    other = update_incident(before, replace(before, detail="the agent to report"), 2.0)
    assert (other.detail, other.last_transition) == ("the agent to report", 1.0)
    assert update_incident(before, replace(before, state=IncidentState.MARKED), 2.0).last_transition == 2.0
