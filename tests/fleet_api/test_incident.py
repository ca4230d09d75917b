from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from nodeguard.fleet_api import incident as incidents
from nodeguard.fleet_api.incident import incident, listed
from nodeguard.fleet_api.schema.incident import IncidentList
from nodeguard.fleet_api.service_state import Service
from nodeguard.model.finding import Action, Health
from nodeguard.model.incident import IncidentState, OperatorDecision
from tests.fleet.scene import Fleet, finding

LEADER = Service("replica-0", leads=True, started=9_000.0)


def scene() -> Fleet:
    fleet = Fleet(6)
    fleet.say(0, finding(health=Health.WARNING))
    fleet.say(1, finding(), finding("port-down", "port/mlx5_0/1", health=Health.SUSPECT))
    fleet.say(2, finding())
    fleet.after(10.0)
    fleet.carry_out()
    fleet.say(2)
    fleet.carry_out()
    return fleet


def test_the_worst_comes_first_and_what_is_over_only_when_it_is_asked_for() -> None:
    fleet = scene()
    told = listed(fleet.planner, LEADER, fleet.now)
    assert [(one.node, one.cause, one.state) for one in told.incidents] == [
        ("node-1", "gpu-lost", IncidentState.MARKED),
        ("node-1", "port-down", IncidentState.MARKED),
        ("node-0", "gpu-lost", IncidentState.OPEN),
    ]
    told = listed(fleet.planner, LEADER, fleet.now, frozenset(IncidentState))
    assert told.incidents[-1].state == IncidentState.RESOLVED
    told = listed(fleet.planner, LEADER, fleet.now, frozenset({IncidentState.OPEN}))
    assert [one.node for one in told.incidents] == ["node-0"]
    told = listed(fleet.planner, LEADER, fleet.now, (), "node-1")
    assert [one.cause for one in told.incidents] == ["gpu-lost", "port-down"]
    assert listed(fleet.planner, LEADER, fleet.now, (), "node-9").incidents == ()


def test_a_list_has_an_end_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incidents, "MOST", 2)
    fleet = scene()
    told = listed(fleet.planner, LEADER, fleet.now)
    assert (len(told.incidents), told.more) == (2, 1)


def test_an_incident_tells_of_its_marks_and_of_what_people_decided() -> None:
    fleet = scene()
    name = next(name for name, one in fleet.planner.incidents["uid-1"].items() if one.cause == "gpu-lost")
    known = replace(LEADER, decisions={name: OperatorDecision(name, "alice", "bob, 12:00")})
    told = incident(fleet.planner, known, name, fleet.now)
    assert told is not None
    assert (told.node, told.resource, told.scope, told.part) == (
        "node-1",
        "gpu/0000:3b:00",
        "node node-1",
        "GPU-1",
    )
    assert (told.state, told.action, told.times, told.resolved) == (
        IncidentState.MARKED,
        Action.RESET_GPU,
        1,
        "",
    )
    assert (told.since, told.age, told.changed_age) == ("2023-11-14T22:12:20Z", 70.0, 0.0)
    assert [(one.check, one.wait.on) for one in told.marks] == [("gpu-lost", "finding")]
    assert [(one.check, one.evidence) for one in told.symptoms] == [("gpu-lost", ("nvml: gone",))]
    assert (told.acknowledged, told.clear) == ("alice", "bob, 12:00")
    assert incident(fleet.planner, LEADER, "no", fleet.now) is None


def test_what_is_over_says_when() -> None:
    fleet = scene()
    [name] = fleet.planner.incidents["uid-2"]
    told = incident(fleet.planner, LEADER, name, fleet.now)
    assert told is not None
    assert (told.resolved, told.scope, told.marks) == ("2023-11-14T22:13:30Z", "", ())


def test_an_age_has_an_end_whatever_an_agent_claims() -> None:
    fleet = Fleet(2)
    report = replace(fleet.reports["uid-0"], age=1e308, health=Health.WARNING)
    report = replace(report, findings=(finding(age=1e308, health=Health.WARNING),))
    fleet.planner.record_report("uid-0", report, fleet.now)
    fleet.carry_out()
    told = listed(fleet.planner, LEADER, fleet.now)
    assert [(one.since, one.age) for one in told.incidents] == [("1970-01-01T00:00:00Z", 1_700_000_000.0)]
    assert msgspec.json.decode(msgspec.json.encode(told), type=IncidentList) == told
