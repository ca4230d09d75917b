"""Every incident that is notified as open is notified as resolved: across restarts, kills and takeovers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest
from msgspec.structs import replace

from nodeguard.aggregator.backends.leader import with_job_outcomes
from nodeguard.aggregator.notifications.formats import Notification
from nodeguard.aggregator.notifications.subscription import SubscriptionState
from nodeguard.aggregator.notifications.subscriptions import COMPLETE, REFUSED_RETRY, TAKEOVER, Subscriptions
from nodeguard.fleet.incidents import recorded_incidents
from nodeguard.fleet.incidents.events import event_of, resolve
from nodeguard.fleet.plan import Plan
from nodeguard.model.action import ActionKind, ActionState, NodeAction
from nodeguard.model.finding import Action, Health
from nodeguard.model.incident import Incident, IncidentState
from nodeguard.model.instant import Instant
from nodeguard.model.pod import PodKey
from nodeguard.model.policy import TopologyLabels
from tests.aggregator.notifications.scene import webhook
from tests.fleet.scene import Fleet, finding
from tests.fleet.test_restored_suppressions import suppressed_fleet

PAGER = replace(webhook(), min_health=Health.FATAL)


class Scene:
    """A fleet of which the changes are notified to a webhook for fatal incidents."""

    def __init__(self) -> None:
        self.fleet = Fleet(3)
        self.subscriptions = Subscriptions((PAGER,))
        self.sent: list[Notification] = []
        self.room = 1000
        self.actions: list[NodeAction] = []

    def plans(self, *, acts: bool = True, has_leader: bool = True) -> list[str]:
        """Plan until nothing is left to do, and return the notified changes. acts, has_leader: see
        Subscriptions.plan_made.
        """
        changes: list[str] = []
        for _ in range(3):
            self.fleet.after(1.0)
            plan = self.fleet.issue()
            self.fleet.write(plan)
            for _, item in self.subscriptions.plan_made(
                self.fleet.planner,
                plan,
                self.fleet.now,
                acts=acts,
                has_leader=has_leader,
                room={PAGER.name: self.room},
                actions=self.actions,
            ):
                changes.append(item.change)
                self.sent.append(item)
        return changes

    def restart(
        self,
        states: Mapping[str, SubscriptionState] | None = None,
        *,
        recorded: bool = True,
        unreported: Iterable[int] = (),
    ) -> None:
        """Start a new aggregator. states: of its spool, None without one. recorded: whether it reads the
        incidents of the earlier one. unreported: nodes that do not report to it; they have no marks.
        """
        incidents = list(self.fleet.planner.all_incidents())
        for number in unreported:
            self.fleet.reports.pop(f"uid-{number}")
            self.fleet.change(number, annotations={}, taints=())
        self.fleet.restart(incidents=incidents if recorded else ())
        self.subscriptions = Subscriptions((PAGER,))
        if states is not None:
            self.subscriptions.restore(states)


@pytest.fixture
def scene() -> Scene:
    scene = Scene()
    scene.fleet.report(0, finding())
    assert scene.plans() == ["opened"]
    return scene


@pytest.mark.parametrize("has_spool", [True, False])
def test_the_end_is_notified_after_the_health_fell_before_a_restart(scene: Scene, has_spool: bool) -> None:
    scene.fleet.report(0, finding(health=Health.SUSPECT))
    scene.plans()
    scene.restart(scene.subscriptions.states() if has_spool else None)
    assert "opened" not in scene.plans()
    scene.fleet.report(0)
    assert scene.plans() == ["resolved"]
    assert scene.plans() == []


@pytest.mark.parametrize("has_spool", [True, False])
def test_the_end_is_notified_if_the_fault_ended_while_the_aggregator_was_down(
    scene: Scene, has_spool: bool
) -> None:
    scene.restart(scene.subscriptions.states() if has_spool else None)
    scene.fleet.report(0)
    assert scene.plans() == ["resolved"]
    assert scene.plans() == []


def test_the_end_names_what_drains_did_with_the_jobs(scene: Scene) -> None:
    [incident] = scene.fleet.planner.all_incidents()
    scene.fleet.restart(incidents=[replace(incident, jobs=("team-a/train", "team-a/eval"))])
    wall = int(scene.fleet.now.wall)
    pods = (PodKey("team-a", "train-0", "uid-of-pod", "team-a/train"),)
    drain = NodeAction(
        ActionKind.DRAIN, incident.node, incident.uid, "quarantine of the GPU", wall, pods=pods
    )
    scene.actions = [replace(drain, state=ActionState.SUCCEEDED, begun_at=wall, changed_at=wall)]
    scene.plans()
    opened = scene.sent[-1]
    assert opened.jobs == ()
    scene.fleet.report(0)
    assert scene.plans() == ["resolved"]
    [text] = scene.sent[-1].jobs
    assert text.startswith(f"team-a/train: 1 of 1 pod gone, evicted by the drain of {incident.node} since ")


def test_the_event_of_the_end_names_the_same(scene: Scene) -> None:
    [incident] = scene.fleet.planner.all_incidents()
    jobs = ("team-a/train",)
    wall = int(scene.fleet.now.wall)
    pods = (PodKey("team-a", "train-0", "uid-of-pod", "team-a/train"),)
    drain = NodeAction(
        ActionKind.DRAIN, incident.node, incident.uid, "quarantine of the GPU", wall, pods=pods,
        state=ActionState.SUCCEEDED, begun_at=wall,
    )  # fmt: skip
    begun = replace(incident, jobs=jobs)
    ended = resolve(begun, wall + 60.0)
    for before, after, is_named in ((None, begun, False), (begun, ended, True)):
        event = event_of(before, after)
        assert event is not None
        plan = with_job_outcomes(
            Plan(incidents=(after,), events=(event,)), [drain], Instant(wall + 60.0, 1.0, "")
        )
        text = f"; team-a/train: 1 of 1 pod gone, evicted by the drain of {incident.node} since "
        assert (text in plan.events[0].message) == is_named
        assert plan.events[0].message.startswith(event.message)


def test_a_kill_after_the_end_was_recorded_does_not_lose_the_notification(scene: Scene) -> None:
    spool = scene.subscriptions.states()
    scene.fleet.report(0)
    assert scene.plans() == ["resolved"]
    scene.restart(spool)
    assert scene.plans() == ["resolved"]
    # The receiver recognises the second one.
    assert scene.sent[-1].id == scene.sent[-2].id
    assert scene.subscriptions.states() == {PAGER.name: SubscriptionState()}


def test_an_incident_without_a_record_ends_when_every_agent_has_had_time_to_report(scene: Scene) -> None:
    spool = scene.subscriptions.states()
    scene.fleet.report(0)
    scene.restart(spool, recorded=False)
    assert scene.plans() == []
    scene.fleet.after(COMPLETE)
    assert scene.plans() == ["resolved"]
    assert scene.plans() == []


def test_an_incident_without_a_record_goes_on_while_its_node_does_not_report(scene: Scene) -> None:
    scene.restart(scene.subscriptions.states(), recorded=False, unreported=[0])
    scene.plans()
    scene.fleet.after(2 * COMPLETE, quiet=["uid-0"])
    assert scene.plans() == []
    scene.fleet.planner.remove_node("uid-0")
    scene.fleet.after(60.0, quiet=["uid-0"])
    assert scene.plans() == ["resolved"]


@pytest.mark.parametrize(
    ("unreported", "expected"),
    [
        ([9], ["resolved"]),
        # Too few of the domain, and of the fleet: the cause may be a version that only reports have.
        ([1], []),
        ([9, 10], []),
    ],
)
def test_a_degraded_domain_without_a_record_ends_when_most_nodes_have_reported(
    scene: Scene, unreported: list[int], expected: list[str]
) -> None:
    for number in range(8, 24):  # in other racks
        scene.fleet.add(number)
    scene.fleet.declare(TopologyLabels("rack", ("rack",)))
    rack = Incident(
        "rack-r0", "", "", "rack/r0", "port-down", Health.FATAL, IncidentState.OPEN,
        scene.fleet.wall, scene.fleet.wall, domain="rack/r0",
    )  # fmt: skip
    scene.restart({PAGER.name: SubscriptionState({rack.name: rack})}, recorded=False, unreported=unreported)
    scene.plans()
    scene.fleet.after(COMPLETE)
    assert scene.plans() == expected


def test_an_incident_beyond_the_limits_goes_on(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded_incidents, "MAX_TOTAL", 0)
    scene.restart(scene.subscriptions.states(), recorded=False)
    scene.plans()
    scene.fleet.after(COMPLETE)
    assert scene.plans() == []


def test_an_incident_without_a_record_goes_on_if_its_fault_is_reported(scene: Scene) -> None:
    scene.restart(scene.subscriptions.states(), recorded=False)
    assert "opened" not in scene.plans()
    scene.fleet.after(COMPLETE)
    assert "resolved" not in scene.plans()


def test_an_aggregator_that_becomes_active_sends_what_changed_meanwhile(scene: Scene) -> None:
    scene.fleet.report(0)
    scene.fleet.report(1, finding())
    assert scene.plans(acts=False) == []
    # A kill now must not lose the end.
    assert len(scene.subscriptions.states()[PAGER.name].open) == 2
    assert sorted(scene.plans()) == ["opened", "resolved"]


def test_a_standby_leaves_to_the_active_aggregator_what_changed_long_before(scene: Scene) -> None:
    scene.fleet.report(0)
    assert scene.plans(acts=False) == []
    scene.fleet.after(TAKEOVER)
    assert scene.plans() == []
    assert scene.subscriptions.states() == {PAGER.name: SubscriptionState()}


def test_a_change_without_a_leader_waits_for_one(scene: Scene) -> None:
    scene.plans(acts=False)
    scene.fleet.report(1, finding())
    for _ in range(3):
        assert scene.plans(acts=False, has_leader=False) == []
        scene.fleet.after(TAKEOVER)
    assert scene.plans() == ["opened"]


def test_a_change_without_a_leader_is_sent_once_by_the_next_one(scene: Scene) -> None:
    scene.plans(acts=False, has_leader=False)
    scene.fleet.report(0)
    for has_leader in (False, True):
        scene.fleet.after(TAKEOVER)
        assert scene.plans(acts=False, has_leader=has_leader) == []
    scene.fleet.after(TAKEOVER - 10.0)
    # A kill of the new leader now must not lose the end.
    scene.plans(acts=False)
    assert len(scene.subscriptions.states()[PAGER.name].open) == 1
    scene.fleet.after(10.0)
    assert scene.plans() == []


def test_an_incident_of_which_the_beginning_was_dropped_is_opened_when_the_spool_has_room(
    scene: Scene,
) -> None:
    (dropped,) = scene.sent
    scene.room = 0
    scene.subscriptions.notify_again(PAGER.name, dropped)
    assert scene.plans() == []
    # Also after a restart, which takes other recorded incidents as notified.
    scene.restart(scene.subscriptions.states())
    assert scene.plans() == []
    scene.room = 1
    assert scene.plans() == ["opened"]
    assert scene.plans() == []


def test_an_incident_that_ends_while_it_waits_is_not_notified(scene: Scene) -> None:
    scene.subscriptions.notify_again(PAGER.name, scene.sent[0])
    scene.room = 0
    scene.fleet.report(0)
    scene.plans()
    scene.room = 1
    assert scene.plans() == []
    assert scene.subscriptions.states() == {PAGER.name: SubscriptionState()}


JUMPS = (-86_400.0, -3_600.0, 3_600.0, 86_400.0)


@pytest.mark.parametrize("seconds", JUMPS)
def test_a_jump_of_the_clock_is_no_time_in_which_every_agent_could_report(
    scene: Scene, seconds: float
) -> None:
    spool = scene.subscriptions.states()
    scene.fleet.report(0)
    scene.restart(spool, recorded=False)
    scene.plans()
    scene.fleet.wall += seconds
    scene.fleet.after(COMPLETE - 60.0)
    assert scene.plans() == []
    scene.fleet.after(60.0)
    assert scene.plans() == ["resolved"]


@pytest.mark.parametrize("seconds", JUMPS)
def test_a_jump_of_the_clock_forgets_no_change_that_the_leader_may_not_have_sent(
    scene: Scene, seconds: float
) -> None:
    scene.fleet.report(0)
    scene.plans(acts=False)
    scene.fleet.wall += seconds
    scene.plans(acts=False)
    assert scene.plans() == ["resolved"]


@pytest.mark.parametrize("seconds", JUMPS)
def test_a_refused_beginning_is_sent_again_whatever_the_clock_does(scene: Scene, seconds: float) -> None:
    scene.subscriptions.refused(PAGER.name, scene.sent[-1], scene.fleet.mono)
    assert scene.plans() == []
    scene.fleet.wall += seconds
    scene.fleet.after(REFUSED_RETRY - 60.0)
    assert scene.plans() == []
    scene.fleet.after(60.0)
    assert scene.plans() == ["opened"]


def test_a_notification_recommends_no_action_of_a_suppressed_check() -> None:
    scene = Scene()
    scene.fleet = suppressed_fleet([0, 9, 17, 26, 34], finding(age=0.0))
    # A fault of the same GPU that the suppressed check does not explain.
    scene.fleet.report(
        1, finding(age=0.0), finding("gpu-hot", age=0.0, health=Health.WARNING, action=Action.NONE)
    )
    assert scene.plans() == ["opened"]
    [sent] = scene.sent
    assert (sent.node, sent.cause, sent.action) == ("node-1", "gpu-lost", Action.NONE)
