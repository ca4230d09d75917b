"""A mark is reported as set once it is observed on its object, and as released once it is gone from there."""

from __future__ import annotations

from msgspec.structs import replace

from nodeguard.executors.kube.desired import DesiredNode
from nodeguard.fleet.decide.observed_marks import REPORTED_AFTER, WriteError
from nodeguard.fleet_api.incident import all_incidents
from nodeguard.model.finding import Health
from nodeguard.model.incident import IncidentState, WriteState
from nodeguard.model.instant import rfc3339
from nodeguard.model.policy import MarkWrites, Mode, SoakPeriod
from tests.fleet.cluster_planner import ClusterPlan
from tests.fleet.scene import AT_ONCE, Fleet, finding, foreign

FORBIDDEN = WriteError('nodes "node-0" is forbidden', is_refused=True)
GPU, OTHER = "gpu/0000:3b:00", "gpu/0000:3c:00"
UNREACHABLE = WriteError("the Kubernetes API did not answer within 5 s", is_refused=False)


def issue(fleet: Fleet, seconds: float = 0.0) -> ClusterPlan:
    """Issue a plan that is not written, after some time."""
    fleet.after(seconds)
    return fleet.issue()


def shown(fleet: Fleet, number: int = 0) -> list[tuple[IncidentState, WriteState | None]]:
    """Return what views, metrics and the API show of the incidents of a node."""
    return [(item.state, item.write) for item in all_incidents(fleet.planner) if item.uid == f"uid-{number}"]


def decided(fleet: Fleet, number: int = 0) -> list[tuple[IncidentState, str]]:
    return [(item.state, item.restraint) for item in fleet.planner.tracker.decisions[f"uid-{number}"]]


def test_a_mark_is_reported_once_it_is_observed() -> None:
    fleet = Fleet(4)
    fleet.report(0, finding())
    plan = issue(fleet)
    assert (fleet.incidents(), plan.incidents, plan.events) == ([], (), ())
    assert shown(fleet) == [(IncidentState.PENDING, None)]
    assert decided(fleet) == [(IncidentState.PENDING, "write")]
    fleet.write(plan)
    plan = issue(fleet)
    assert [incident.state for incident in plan.incidents] == [IncidentState.MARKED]
    assert [event.reason for event in plan.events] == ["NodeguardMarked"]
    assert shown(fleet) == [(IncidentState.MARKED, None)]
    assert decided(fleet) == [(IncidentState.MARKED, "")]


def test_a_refused_write_is_reported_after_a_while_with_its_error_and_until_it_succeeds() -> None:
    fleet = Fleet(4)
    fleet.report(0, finding())
    first = issue(fleet)
    fleet.planner.unobserved_writes.record_error("uid-0", FORBIDDEN)
    assert issue(fleet, REPORTED_AFTER - 1.0).incidents == ()
    plan = issue(fleet, 1.0)
    [incident] = plan.incidents
    expected = (IncidentState.WITHHELD, WriteState.REFUSED, None)
    assert (incident.state, incident.write, incident.mark) == expected
    assert incident.detail == 'its write is refused: nodes "node-0" is forbidden'
    [event] = plan.events
    assert event.reason == "NodeguardWithheld"
    assert "node node-0 is not marked: its write is refused" in event.message
    assert decided(fleet) == [(IncidentState.WITHHELD, "write")]
    for _ in range(3):
        fleet.planner.unobserved_writes.record_error(
            "uid-0", WriteError("forbidden, request 7", is_refused=True)
        )
        plan = issue(fleet, 10.0)
        assert (plan.incidents, plan.events) == ((), ()), "the same error is written once"
    fleet.write(first)
    plan = issue(fleet)
    assert [(item.state, item.write, item.occurrences) for item in plan.incidents] == [
        (IncidentState.MARKED, None, 1)
    ]


def test_a_write_without_an_answer_is_pending() -> None:
    fleet = Fleet(4)
    fleet.report(0, finding())
    issue(fleet)
    [incident] = issue(fleet, REPORTED_AFTER).incidents
    assert (incident.state, incident.write) == (IncidentState.WITHHELD, WriteState.PENDING)
    assert incident.detail.startswith("its write has been pending since 2023-")
    fleet.planner.unobserved_writes.record_error("uid-0", UNREACHABLE)
    [incident] = issue(fleet, 1.0).incidents
    assert incident.detail.endswith(f": {UNREACHABLE.message}")


def details(fleet: Fleet) -> dict[str, str]:
    """Return the details of the incidents of the first node, by target."""
    return {item.target: item.detail for item in all_incidents(fleet.planner) if item.uid == "uid-0"}


def test_two_changes_of_one_node_have_a_beginning_each() -> None:
    fleet = Fleet(4)
    fleet.report(0, finding(health=Health.SUSPECT))
    fleet.carry_out()
    fleet.report(0)
    issue(fleet)
    removed_at = rfc3339(fleet.wall)
    issue(fleet, 60.0)
    fleet.report(0, finding("gpu-ecc", OTHER))
    plan = issue(fleet, 1.0)
    added_at = rfc3339(fleet.wall)
    waiting = "the write that removes the mark has been pending since"
    assert details(fleet)[GPU] == f"{waiting} {removed_at}"
    assert decided(fleet) == [(IncidentState.PENDING, "write")], "its own write is a second old"
    issue(fleet, REPORTED_AFTER)
    assert details(fleet) == {
        GPU: f"{waiting} {removed_at}",
        OTHER: f"its write has been pending since {added_at}",
    }
    fleet.write(plan)
    assert issue(fleet).incidents != ()
    assert details(fleet) == {GPU: "", OTHER: ""}


def test_changes_that_follow_each_other_are_not_one_that_takes_long() -> None:
    fleet = Fleet(4)
    plans = []
    for number in range(6):
        fleet.report(
            0, *(finding("gpu-ecc", f"gpu/0000:3{item}:00", age=0.0) for item in range(number % 2 + 1))
        )
        plans.append(issue(fleet, 3.0))
        assert not any(item.write for item in all_incidents(fleet.planner))
        fleet.write(plans[-1])


def test_a_recorded_incident_keeps_its_state_until_the_mark_is_observed() -> None:
    fleet = Fleet(20, replace(AT_ONCE, budget=replace(AT_ONCE.budget, fleet=0.05)))
    fleet.report(0, finding())
    fleet.report(1, finding("gpu-ecc", age=1.0))
    fleet.carry_out()
    assert [item.state for item in fleet.incidents(1)] == [IncidentState.WITHHELD]
    fleet.report(0)
    # The budget of a mark that is being removed is free once that is observed.
    for _ in range(2):
        plan = issue(fleet)
        if [desired.uid for desired in plan.nodes] == ["uid-1"]:
            break
        fleet.write(plan)
    assert ([item for item in plan.incidents if item.uid == "uid-1"], shown(fleet, 1)) == (
        [],
        [(IncidentState.PENDING, None)],
    )
    [incident] = fleet.incidents(1)
    assert (incident.state, incident.budget != "") == (IncidentState.WITHHELD, True)
    fleet.write(plan)
    assert [item.state for item in issue(fleet).incidents] == [IncidentState.MARKED]


def test_a_mark_is_released_once_it_is_gone() -> None:
    fleet = Fleet(4)
    fleet.report(0, finding())
    fleet.carry_out()
    fleet.report(0)
    plan = issue(fleet)
    assert plan.nodes[0].taints == ()
    assert [item.state for item in fleet.incidents()] == [IncidentState.MARKED]
    assert issue(fleet, 1.0).incidents == ()
    fleet.planner.unobserved_writes.record_error("uid-0", FORBIDDEN)
    refused = issue(fleet, REPORTED_AFTER)
    [incident] = refused.incidents
    assert (incident.state, incident.write) == (IncidentState.RECOVERING, WriteState.REFUSED)
    assert incident.detail == 'the write that removes the mark is refused: nodes "node-0" is forbidden'
    assert [event.reason for event in refused.events] == ["NodeguardRecovering"]
    fleet.write(plan)
    assert [item.state for item in issue(fleet).incidents] == [IncidentState.RESOLVED]


def test_a_removal_that_fails_after_the_soak_period_has_an_event() -> None:
    fleet = Fleet(4, replace(AT_ONCE, soak=SoakPeriod(60.0, 60.0, 86_400.0)))
    fleet.report(0, finding())
    fleet.carry_out()
    fleet.report(0)
    assert [event.reason for event in issue(fleet, 1.0).events] == ["NodeguardRecovering"]
    assert issue(fleet, 60.0).incidents == ()
    fleet.planner.unobserved_writes.record_error("uid-0", FORBIDDEN)
    [event] = issue(fleet, REPORTED_AFTER).events
    assert (event.reason, "the write that removes the mark is refused" in event.message) == (
        "NodeguardRecovering",
        True,
    )


def test_a_burst_costs_one_write_of_each_incident() -> None:
    fleet, writes, events = Fleet(1000), list[str](), list[str]()
    for number in range(750):
        fleet.report(number, finding())
    queue: list[DesiredNode] = []
    for _ in range(1000):
        plan = fleet.issue(50)
        queue += plan.nodes
        writes += [item.name for item in plan.incidents]
        events += [item.incident for item in plan.events]
        if not (queue or plan.deferred):
            break
        # 50 writes a second, as the executor's; two plans a second issue 100.
        for desired in queue[:25]:
            fleet.planner.record_written(desired.uid, desired.record)
            fleet.mark(desired)
        del queue[:25]
        fleet.after(0.5)
    assert fleet.wall - 1_700_000_000.0 > 2 * REPORTED_AFTER
    assert (len(writes), len(set(writes)), len(events), len(fleet.marked())) == (750, 750, 750, 750)


def test_a_write_that_fails_is_reported_though_others_succeed() -> None:
    fleet = Fleet(100)
    fleet.report(0, finding())
    issue(fleet)
    fleet.planner.unobserved_writes.record_error("uid-0", FORBIDDEN)
    for number in range(1, 10):
        fleet.report(number, finding())
        plan = issue(fleet, 1.0)
        for desired in plan.nodes:
            if desired.uid != "uid-0":
                fleet.mark(desired)
    assert shown(fleet) == [(IncidentState.WITHHELD, WriteState.REFUSED)]


def test_a_mark_that_another_client_removes_keeps_its_incident_while_it_is_set_again() -> None:
    fleet = Fleet(4)
    fleet.report(0, finding())
    fleet.carry_out()
    fleet.change(0, taints=(foreign(),))
    plan = issue(fleet)
    assert [item.state for item in fleet.incidents()] == [IncidentState.MARKED]
    assert shown(fleet) == [(IncidentState.PENDING, None)]
    fleet.write(plan)
    assert issue(fleet).incidents == ()


def cordoned(fleet: Fleet) -> bool:
    return fleet.nodes["uid-0"].unschedulable


def test_a_cordon_that_an_operator_removes_is_no_mark() -> None:
    fleet = Fleet(4, replace(AT_ONCE, marks=MarkWrites(taint=False, cordon=True)))
    fleet.report(0, finding())
    fleet.carry_out()
    assert (cordoned(fleet), shown(fleet)) == (True, [(IncidentState.MARKED, None)])
    fleet.change(0, unschedulable=False)
    fleet.carry_out()
    assert not cordoned(fleet)
    assert decided(fleet) == [(IncidentState.WITHHELD, "uncordoned")]
    [incident] = fleet.incidents()
    assert (incident.state, incident.mark) == (IncidentState.WITHHELD, None)
    assert "the node was uncordoned" in incident.detail


def test_without_taints_a_suspect_mark_keeps_no_work_away() -> None:
    fleet = Fleet(4, replace(AT_ONCE, marks=MarkWrites(taint=False, cordon=True)))
    fleet.report(0, finding("gpu-ecc", health=Health.SUSPECT))
    fleet.carry_out()
    assert decided(fleet) == [(IncidentState.WITHHELD, "no-taint")]
    assert [item.state for item in fleet.incidents()] == [IncidentState.WITHHELD]


def test_the_mark_of_a_device_is_reported_once_its_rule_is_observed() -> None:
    fleet = Fleet(4)
    fleet.publish(0)
    fleet.report(0, finding())
    plan = issue(fleet)
    [rule] = plan.rules
    assert shown(fleet) == [(IncidentState.PENDING, None)]
    fleet.planner.unobserved_writes.record_error(rule.name, FORBIDDEN)
    [incident] = issue(fleet, REPORTED_AFTER).incidents
    assert (incident.state, incident.write) == (IncidentState.WITHHELD, WriteState.REFUSED)
    assert incident.scope == "GPU 0000:3b:00 of node-0"
    fleet.write(plan)
    [incident] = issue(fleet).incidents
    assert (incident.state, incident.scope) == (IncidentState.MARKED, "GPU 0000:3b:00 of node-0")
    fleet.report(0)
    gone = issue(fleet)
    assert (gone.rules_gone, gone.incidents) == ((rule.name,), ())
    fleet.write(gone)
    assert [item.state for item in issue(fleet).incidents] == [IncidentState.RESOLVED]


def test_observe_mode_waits_for_no_write() -> None:
    fleet = Fleet(4, replace(AT_ONCE, mode=Mode.OBSERVE))
    fleet.report(0, finding())
    assert [item.state for item in issue(fleet).incidents] == [IncidentState.DRY_RUN]
    assert issue(fleet, 60.0).incidents == ()


def test_a_new_policy_decides_which_marks_are_in_effect() -> None:
    fleet = Fleet(4, replace(AT_ONCE, marks=MarkWrites(taint=False, cordon=True)))
    fleet.report(0, finding())
    fleet.carry_out()
    fleet.change(0, unschedulable=False)
    fleet.carry_out()
    assert decided(fleet) == [(IncidentState.WITHHELD, "uncordoned")]
    fleet.policy = AT_ONCE
    fleet.planner.set_policy(fleet.policy)
    fleet.carry_out()
    assert decided(fleet) == [(IncidentState.MARKED, "")]
    assert fleet.taints(0) == ["nodeguard.dev/quarantine=gpu-bus"]
