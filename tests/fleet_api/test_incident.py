from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.cli.render.terminal import PLAIN, format_view
from nodeguard.fleet_api import incident as incidents
from nodeguard.fleet_api.incident import describe_incident, list_incidents
from nodeguard.fleet_api.schema.incident import IncidentList
from nodeguard.fleet_api.service_state import ServiceState
from nodeguard.fleet_api.text.incident import incident_view
from nodeguard.model.drain import DrainMode, DrainPolicy
from nodeguard.model.finding import Action, Health
from nodeguard.model.incident import FalseAlarm, IncidentState, OperatorDecision
from tests.fleet.scene import Fleet, finding

LEADER = ServiceState("replica-0", is_leader=True, started=9_000.0)


def scene() -> Fleet:
    fleet = Fleet(6)
    fleet.report(0, finding(health=Health.WARNING))
    fleet.report(1, finding(), finding("port-down", "port/mlx5_0/1", health=Health.SUSPECT))
    fleet.report(2, finding())
    fleet.after(10.0)
    fleet.carry_out()
    fleet.report(2)
    fleet.carry_out()
    return fleet


def test_the_worst_incident_comes_first_and_resolved_ones_only_on_request() -> None:
    fleet = scene()
    view = list_incidents(fleet.planner, LEADER, fleet.now)
    assert [(item.node, item.cause, item.state) for item in view.incidents] == [
        ("node-1", "gpu-lost", IncidentState.MARKED),
        ("node-1", "port-down", IncidentState.MARKED),
        ("node-0", "gpu-lost", IncidentState.OPEN),
    ]
    view = list_incidents(fleet.planner, LEADER, fleet.now, frozenset(IncidentState))
    assert view.incidents[-1].state == IncidentState.RESOLVED
    view = list_incidents(fleet.planner, LEADER, fleet.now, frozenset({IncidentState.OPEN}))
    assert [item.node for item in view.incidents] == ["node-0"]
    view = list_incidents(fleet.planner, LEADER, fleet.now, (), "node-1")
    assert [item.cause for item in view.incidents] == ["gpu-lost", "port-down"]
    assert list_incidents(fleet.planner, LEADER, fleet.now, (), "node-9").incidents == ()


def test_a_list_has_a_limit_and_counts_the_omitted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incidents, "MAX_INCIDENTS", 2)
    fleet = scene()
    view = list_incidents(fleet.planner, LEADER, fleet.now)
    assert (len(view.incidents), view.omitted) == (2, 1)


def test_an_incident_has_its_marks_and_decisions() -> None:
    fleet = scene()
    name = next(
        name
        for name, item in fleet.planner.tracker.recorded.by_uid["uid-1"].items()
        if item.cause == "gpu-lost"
    )
    statement = FalseAlarm("bob", "2023-11-14T22:13:20Z", "a sensor")
    decision = OperatorDecision(name, "alice", "bob, 12:00", false_alarm=statement)
    available = replace(LEADER, decisions={name: decision})
    view = describe_incident(fleet.planner, available, name, fleet.now)
    assert view is not None
    expected = ("node-1", "gpu/0000:3b:00", "node node-1", "GPU-1")
    assert (view.node, view.resource, view.scope, view.component) == expected
    assert (view.state, view.action, view.occurrences, view.resolved_at) == (
        IncidentState.MARKED,
        Action.RESET_GPU,
        1,
        "",
    )
    assert (view.since, view.age, view.last_transition_age) == ("2023-11-14T22:12:20Z", 70.0, 0.0)
    assert [(item.check, item.wait.on) for item in view.marks] == [("gpu-lost", "finding")]
    assert [(item.check, item.evidence) for item in view.symptoms] == [("gpu-lost", ("nvml: gone",))]
    assert (view.acknowledged, view.clear_request, view.false_alarm) == ("alice", "bob, 12:00", statement)
    text = " ".join(format_view(incident_view(view), PLAIN).split())
    assert "false alarm recorded by bob at 2023-11-14T22:13:20Z: a sensor" in text
    assert describe_incident(fleet.planner, LEADER, "no", fleet.now) is None


def test_a_resolved_incident_has_its_time() -> None:
    fleet = scene()
    [name] = fleet.planner.tracker.recorded.by_uid["uid-2"]
    view = describe_incident(fleet.planner, LEADER, name, fleet.now)
    assert view is not None
    assert (view.resolved_at, view.scope, view.marks) == ("2023-11-14T22:13:30Z", "", ())


def test_the_age_of_a_finding_is_bounded() -> None:
    fleet = Fleet(2)
    report = replace(fleet.reports["uid-0"], age=1e308, health=Health.WARNING)
    report = replace(report, findings=(finding(age=1e308, health=Health.WARNING),))
    fleet.planner.record_report("uid-0", report, fleet.now)
    fleet.carry_out()
    view = list_incidents(fleet.planner, LEADER, fleet.now)
    assert [(item.since, item.age) for item in view.incidents] == [("1970-01-01T00:00:00Z", 1_700_000_000.0)]
    assert msgspec.json.decode(msgspec.json.encode(view), type=IncidentList) == view


def test_an_incident_has_the_commands_of_its_action() -> None:
    fleet = scene()
    by_cause = {item.cause: name for name, item in fleet.planner.tracker.recorded.by_uid["uid-1"].items()}
    lost = describe_incident(fleet.planner, LEADER, by_cause["gpu-lost"], fleet.now)
    assert lost is not None
    assert lost.how[1] == "kubectl drain node-1 --ignore-daemonsets --delete-emptydir-data"
    assert "nvidia-smi --gpu-reset -i 0000:3b:00.0" in lost.how[4]
    [resolved] = fleet.planner.tracker.recorded.by_uid["uid-2"]
    over = describe_incident(fleet.planner, LEADER, resolved, fleet.now)
    assert over is not None
    assert (over.state, over.how) == (IncidentState.RESOLVED, ())


def test_where_drains_are_on_the_commands_empty_only_the_faulty_gpu() -> None:
    fleet = scene()
    fleet.planner.set_policy(replace(fleet.policy, drain=DrainPolicy(DrainMode.OBSERVE)))
    by_cause = {item.cause: name for name, item in fleet.planner.tracker.recorded.by_uid["uid-1"].items()}

    def commands(cause: str) -> str:
        view = describe_incident(fleet.planner, LEADER, by_cause[cause], fleet.now)
        assert view is not None
        return "\n".join(view.how)

    assert commands("gpu-lost").startswith("nodeguard drain node node-1 --wait\nPOD=")
    assert "kubectl drain" not in commands("gpu-lost")
    # A fault that is not fatal any more has nothing to drain.
    fleet.report(1, finding(health=Health.SUSPECT))
    fleet.carry_out()
    assert "nodeguard drain" not in commands("gpu-lost")
    assert "kubectl drain" in commands("gpu-lost")


def test_a_check_of_the_catalogue_gives_commands_of_its_own() -> None:
    catalogue, _ = load_catalogue()
    checks = {check.id: check for check in catalogue.checks}
    fleet = Fleet(3)
    fleet.report(0, finding("fabric-manager-down", "node", action=Action.RESTART_SERVICE))
    fleet.after(10.0)
    fleet.carry_out()
    [name] = fleet.planner.tracker.recorded.by_uid["uid-0"]
    with_checks = describe_incident(fleet.planner, LEADER, name, fleet.now, checks)
    without = describe_incident(fleet.planner, LEADER, name, fleet.now)
    assert with_checks is not None
    assert without is not None
    assert with_checks.how[-1].endswith("-- chroot /host systemctl restart nvidia-fabricmanager")
    assert without.how == ()
