"""Injected faults that end while no aggregator runs, or another one takes over: mark, incident and webhook end."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from nodeguard.aggregator.notifications.formats import Notification
from nodeguard.aggregator.notifications.subscriptions import COMPLETE, Subscriptions
from nodeguard.model.finding import Health
from nodeguard.model.incident import Incident, IncidentState
from nodeguard.model.policy import InjectionPolicy, Mode, Policy, SoakPeriod
from tests.aggregator.notifications.scene import webhook
from tests.fleet.scene import AT_ONCE, Fleet, finding, in_order

SOAK = 60.0
POLICY = replace(AT_ONCE, soak=SoakPeriod(SOAK, 600.0, 86_400.0), injection=InjectionPolicy(allowed=True))
PAGER = replace(webhook(), min_health=Health.FATAL)


class Rehearsal:
    """A fleet with an injected fault on node 0, and a webhook that got its beginning.

    notifications: those of the present aggregator since the beginning.
    """

    def __init__(self, policy: Policy = POLICY) -> None:
        self.fleet = Fleet(3, policy)
        self.subscriptions = Subscriptions((PAGER,))
        self.notifications: list[Notification] = []
        self.fleet.report(0, proven=(in_order(),), injected=(finding(age=0.0),))
        self.plan()
        assert [(item.change, item.injected) for item in self.notifications] == [("opened", True)]
        self.notifications.clear()

    def incident(self) -> Incident:
        [incident] = self.fleet.planner.tracker.recorded.by_uid["uid-0"].values()
        assert incident.injected
        return incident

    @property
    def changes(self) -> list[str]:
        """Return the notified changes, without updates."""
        assert all(item.injected and item.text.startswith("injected: ") for item in self.notifications)
        return [item.change for item in self.notifications if item.change != "updated"]

    def plan(self, *, acts: bool = True) -> None:
        """Plan until nothing is left to do."""
        for _ in range(3):
            plan = self.fleet.issue() if acts else self.fleet.plan()
            if acts:
                self.fleet.write(plan)
            notified = self.subscriptions.plan_made(
                self.fleet.planner, plan, self.fleet.now, acts=acts, has_leader=True, room={PAGER.name: 100}
            )
            self.notifications += [item for _, item in notified]

    def pass_time(self, seconds: float) -> None:
        self.fleet.after(seconds)
        self.plan()

    def restart(self, down: float = 600.0, *, recorded: bool = True, has_spool: bool = True) -> None:
        """Start a new aggregator after some seconds in which none ran and the injected fault ended.

        recorded: whether it reads the incidents; has_spool: and the spool of notifications.
        """
        incidents, states = self.fleet.planner.all_incidents(), self.subscriptions.states()
        self.fleet.wall += down
        self.fleet.mono += down
        self.fleet.report(0)
        self.fleet.restart(incidents=incidents if recorded else ())
        self.subscriptions = Subscriptions((PAGER,))
        if has_spool:
            self.subscriptions.restore(states)


@pytest.mark.parametrize("has_spool", [True, False])
@pytest.mark.parametrize("recorded", [True, False])
def test_an_injected_fault_that_ended_while_no_aggregator_ran_is_released(
    has_spool: bool, recorded: bool
) -> None:
    rehearsal = Rehearsal()
    rehearsal.restart(recorded=recorded, has_spool=has_spool)
    rehearsal.plan()
    assert rehearsal.fleet.marked() == [0]
    assert rehearsal.incident().state == IncidentState.RECOVERING
    rehearsal.pass_time(SOAK + 1.0)
    assert rehearsal.fleet.marked() == []
    assert rehearsal.incident().state == IncidentState.RESOLVED
    assert rehearsal.changes == ["resolved"]


def test_an_injected_fault_without_a_mark_that_ended_while_no_aggregator_ran_is_resolved() -> None:
    rehearsal = Rehearsal(replace(POLICY, mode=Mode.OBSERVE))
    assert rehearsal.incident().state == IncidentState.DRY_RUN
    rehearsal.restart()
    rehearsal.plan()
    assert rehearsal.incident().state == IncidentState.RESOLVED
    assert rehearsal.changes == ["resolved"]


def test_an_incident_without_a_record_ends_for_the_webhook_once_every_agent_had_time_to_report() -> None:
    rehearsal = Rehearsal(replace(POLICY, mode=Mode.OBSERVE))
    rehearsal.restart(recorded=False)
    rehearsal.plan()
    assert rehearsal.changes == []
    rehearsal.pass_time(COMPLETE + 1.0)
    assert rehearsal.changes == ["resolved"]


def test_the_mark_stays_until_the_agent_reports_that_the_check_passes() -> None:
    rehearsal = Rehearsal()
    fleet, incidents = rehearsal.fleet, rehearsal.fleet.planner.all_incidents()
    del fleet.reports["uid-0"]
    fleet.wall += 7_200.0
    fleet.mono += 7_200.0
    fleet.restart(incidents=incidents)
    rehearsal.pass_time(7_200.0)
    assert fleet.marked() == [0]
    assert rehearsal.incident().state == IncidentState.MARKED
    fleet.report(0)
    rehearsal.pass_time(1.0)
    rehearsal.pass_time(SOAK + 1.0)
    assert fleet.marked() == []
    assert rehearsal.changes == ["resolved"]


def test_the_spooled_reports_of_an_injected_fault_and_of_its_end_release_the_mark() -> None:
    rehearsal = Rehearsal()
    rehearsal.restart()
    # The agent sends what it could not send, the oldest first.
    rehearsal.fleet.report(0, proven=(in_order(),), injected=(finding(age=0.0),), age=590.0)
    rehearsal.plan()
    rehearsal.fleet.report(0, age=300.0)
    rehearsal.plan()
    assert rehearsal.fleet.marked() == [0]
    rehearsal.pass_time(1.0)
    rehearsal.pass_time(SOAK + 1.0)
    assert rehearsal.fleet.marked() == []
    assert rehearsal.changes == ["resolved"]


def test_a_policy_that_no_longer_allows_an_injected_fault_releases_its_mark_after_a_restart() -> None:
    rehearsal = Rehearsal()
    fleet, incidents = rehearsal.fleet, rehearsal.fleet.planner.all_incidents()
    fleet.policy = replace(POLICY, injection=InjectionPolicy())
    fleet.restart(incidents=incidents)
    rehearsal.plan()
    rehearsal.pass_time(SOAK + 1.0)
    assert fleet.marked() == []
    assert rehearsal.changes == ["resolved"]


@pytest.mark.parametrize("ends_before", [True, False], ids=["before-takeover", "after-takeover"])
def test_a_standby_that_takes_over_releases_the_mark_and_notifies_the_end(ends_before: bool) -> None:
    rehearsal = Rehearsal()
    fleet = rehearsal.fleet
    # The standby reads the incidents when it starts, and receives the same reports.
    incidents = fleet.planner.all_incidents()
    fleet.restart(incidents=incidents)
    rehearsal.subscriptions = Subscriptions((PAGER,))
    rehearsal.plan(acts=False)
    if ends_before:
        fleet.report(0)
        rehearsal.plan(acts=False)
        fleet.after(SOAK + 1.0)
        rehearsal.plan(acts=False)
        assert rehearsal.changes == []
        assert fleet.marked() == [0]
    else:
        rehearsal.plan()
        fleet.report(0)
        rehearsal.plan()
        fleet.after(SOAK + 1.0)
    rehearsal.plan()
    assert fleet.marked() == []
    assert rehearsal.incident().state == IncidentState.RESOLVED
    assert rehearsal.changes == ["resolved"]
