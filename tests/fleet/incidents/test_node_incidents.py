"""The incidents of one node: their states, and what the release of their marks waits for."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from nodeguard.kube.incident_projection import incident_status
from nodeguard.model.finding import Action, Health
from nodeguard.model.incident import IncidentState
from nodeguard.model.mark import HOLD_ANNOTATION, MAINTENANCE_ANNOTATION
from nodeguard.model.policy import SoakPeriod
from tests.fleet.scene import AT_ONCE, Fleet, finding
from tests.fleet.test_restored_suppressions import restart, suppressed_fleet


@pytest.mark.parametrize(
    ("check", "change", "detail"),
    [
        ("gpu-lost", {HOLD_ANNOTATION: "mine"}, "the hold to end (mine); until then nothing is changed here"),
        (
            "gpu-lost",
            {MAINTENANCE_ANNOTATION: "new cable"},
            "maintenance to end (new cable), and its check to pass after it",
        ),
        (
            "renamed-check",
            {},
            "check renamed-check, which no agent has any more: hold the check in the policy, or remove the mark by hand",
        ),
    ],
)
def test_an_incident_names_what_the_release_of_its_mark_waits_for(
    check: str, change: dict[str, Any], detail: str
) -> None:
    fleet = Fleet(2, replace(AT_ONCE, soak=SoakPeriod(600.0, 600.0)))
    fleet.report(0, finding(check))
    fleet.carry_out()
    fleet.report(0)
    fleet.carry_out()
    fleet.change(0, annotations={**fleet.nodes["uid-0"].annotations, **change})
    fleet.after(3_600.0)
    fleet.carry_out()
    [incident] = fleet.incidents()
    assert (incident.state, incident.detail) == (IncidentState.MARKED, f"waits for {detail}")
    assert fleet.marked() == [0]


def test_a_new_leader_changes_no_withheld_incident_while_the_report_is_late() -> None:
    fleet = Fleet(2, replace(AT_ONCE, pause="new switches"))
    fleet.report(0, finding(age=100.0))
    fleet.carry_out()
    fleet.reports["uid-0"] = replace(fleet.reports["uid-0"], age=60.0)
    fleet.wall, fleet.mono = fleet.wall + 60.0, fleet.mono + 60.0
    fleet.restart()
    late = fleet.carry_out()
    fleet.after(5.0)
    confirmed = fleet.carry_out()
    assert [incident.state for incident in fleet.incidents()] == [IncidentState.WITHHELD]
    assert (late.incidents, late.events, confirmed.incidents, confirmed.events) == ((), (), (), ())


def test_no_finding_of_a_suppressed_check_gives_an_incident_its_action() -> None:
    fleet = suppressed_fleet([0, 9, 17, 26, 34], finding(age=0.0))
    hot = finding("gpu-hot", age=0.0, health=Health.WARNING, action=Action.RESTART_WORKLOAD)
    fleet.report(9, finding(age=0.0), hot)
    fleet.carry_out()
    restart(fleet)
    actions = [incident_status(item).action for number in (0, 9) for item in fleet.incidents(number)]
    assert actions == [Action.NONE, Action.RESTART_WORKLOAD]
    [suppression] = fleet.planner.tracker.recorded.by_uid[""].values()
    fleet.planner.clear(suppression, fleet.now)
    fleet.carry_out()
    assert [item.action for item in fleet.incidents(0)] == [Action.RESET_GPU]


def test_an_incident_with_a_mark_has_the_action_of_its_suppressed_check() -> None:
    fleet = suppressed_fleet([0, 9, 17, 26, 34], finding(age=0.0))
    fleet.report(0, finding(age=0.0, fact=True))
    fleet.carry_out()
    [incident] = fleet.incidents(0)
    assert (incident.state, incident.action) == (IncidentState.MARKED, Action.RESET_GPU)
