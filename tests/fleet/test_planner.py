from __future__ import annotations

import pytest
from msgspec.structs import replace

from nodeguard.fleet.state.latest_report import TupleInterner
from nodeguard.fleet.state.node_marks import decode_record, encode_record
from nodeguard.model.finding import Health
from nodeguard.model.incident import IncidentState
from nodeguard.model.mark import STATE_ANNOTATION, Mark, MarkRecord
from nodeguard.model.policy import CheckLimit, GracePeriods, MarkWrites, Mode, Policy, SoakPeriod
from tests.fleet.cluster_planner import ClusterPlanner
from tests.fleet.scene import AT_ONCE, CHECKS, WIDE, Fleet, finding, foreign, in_order, states

QUARANTINE = "nodeguard.dev/quarantine=gpu-bus"


def test_a_fatal_finding_becomes_a_taint_a_condition_and_an_incident() -> None:
    fleet = Fleet(3)
    fleet.report(1, finding())
    plan = fleet.carry_out()
    assert fleet.taints(1) == [QUARANTINE]
    condition = fleet.nodes["uid-1"].condition
    assert condition is not None
    assert (condition.status, condition.reason) == ("False", "GPUFaultResetGPU")
    [incident] = plan.incidents
    assert (incident.node, incident.cause, incident.state, incident.scope) == (
        "node-1", "gpu-lost", IncidentState.MARKED, "node node-1",
    )  # fmt: skip
    assert [event.reason for event in plan.events] == ["NodeguardMarked"]
    assert fleet.marked() == [1]


def test_a_suspect_mark_keeps_gangs_away_and_a_warning_marks_nothing() -> None:
    fleet = Fleet(2)
    fleet.report(0, finding(health=Health.SUSPECT))
    fleet.report(1, finding(health=Health.WARNING))
    fleet.carry_out()
    assert fleet.taints(0) == ["nodeguard.dev/suspect=gpu-bus"]
    assert fleet.taints(1) == []
    assert len(states(fleet)) == 1


def test_observe_mode_writes_nothing_and_reports_a_dry_run() -> None:
    fleet = Fleet(3, replace(AT_ONCE, mode=Mode.OBSERVE))
    fleet.report(1, finding())
    plan = fleet.carry_out()
    assert (plan.nodes, plan.rules) == ((), ())
    assert [incident.state for incident in plan.incidents] == [IncidentState.DRY_RUN]
    assert [event.reason for event in plan.events] == ["NodeguardDryRun"]
    assert fleet.plan().incidents == ()


@pytest.mark.parametrize("mode", [Mode.ENFORCE, Mode.OBSERVE])
def test_a_stale_agent_that_reports_a_fault_is_not_stale_in_the_next_plan(mode: Mode) -> None:
    fleet = Fleet(20, replace(AT_ONCE, mode=mode))
    fleet.carry_out()
    fleet.after(60.0, quiet=("uid-0",))
    assert fleet.planner.stale_agents.stale == {"uid-0"}

    fleet.report(0, finding())
    [incident] = fleet.carry_out().incidents
    expected = {
        Mode.ENFORCE: (IncidentState.MARKED, ""),
        Mode.OBSERVE: (IncidentState.DRY_RUN, "would quarantine node node-0"),
    }
    assert (incident.state, incident.detail) == expected[mode]


def test_a_fault_in_the_first_reports_after_a_start_freezes_nothing() -> None:
    fleet = Fleet(4)
    planner = fleet.planner = ClusterPlanner(AT_ONCE, CHECKS)
    for node in fleet.nodes.values():
        planner.observe_node(node)
    planner.tick(fleet.now)
    assert planner.stale_agents.frozen

    fleet.report(0, finding())
    for number in range(1, 4):
        fleet.report(number)
    [incident] = fleet.carry_out().incidents
    assert incident.state == IncidentState.MARKED


def test_a_restart_gives_the_same_plan() -> None:
    fleet = Fleet(100, Policy(mode=Mode.ENFORCE, grace=GracePeriods(0.0, 0.0)))
    for number in range(20):
        fleet.report(number, finding(age=100.0 + number))
    fleet.carry_out()
    before = fleet.marked()
    assert len(before) == 5
    fleet.restart()
    assert fleet.plan().nodes == ()
    fleet.carry_out()
    assert fleet.marked() == before


def test_a_pending_plan_counts() -> None:
    fleet = Fleet(20, replace(AT_ONCE, budget=replace(WIDE, fleet=0.05)))
    fleet.report(0, finding(age=10.0))
    first = fleet.issue()
    fleet.report(1, finding(age=1000.0))
    second = fleet.plan()
    assert [node.name for node in first.nodes] == ["node-0"]
    assert second.nodes == ()
    fleet.planner.record_failed("uid-0")
    assert [node.name for node in fleet.plan().nodes] == ["node-1"]


def test_a_node_with_the_same_name_and_another_uid_is_new() -> None:
    fleet = Fleet(2)
    fleet.report(0, finding())
    fleet.carry_out()
    other = replace(fleet.nodes.pop("uid-0"), uid="uid-9", taints=(), annotations={}, condition=None)
    fleet.reports.pop("uid-0")
    fleet.see(other)
    plan = fleet.carry_out()
    assert [(incident.uid, incident.state, incident.detail) for incident in plan.incidents] == [
        ("uid-0", IncidentState.RESOLVED, "its Node is gone")
    ]
    assert fleet.taints(9) == []


def test_unmark_leaves_nothing() -> None:
    fleet = Fleet(3, replace(AT_ONCE, marks=MarkWrites(cordon=True)))
    fleet.publish(2)
    for number in range(3):
        fleet.report(number, finding())
    fleet.change(1, taints=(foreign(),))
    fleet.carry_out()
    fleet.planner.paused = "unmarked"
    fleet.write(fleet.planner.removal_plan())
    fleet.carry_out()
    assert fleet.rules == {}
    for node in fleet.nodes.values():
        assert (node.annotations, node.condition, node.unschedulable) == ({}, None, False)
    assert fleet.taints(1) == ["nvidia.com/gpu=present"]


def test_unmark_leaves_taints_that_others_set_under_the_keys_of_nodeguard() -> None:
    fleet = Fleet(4)
    theirs = foreign("nodeguard.dev/quarantine", "x")
    evicting = replace(theirs, effect="NoExecute")
    fleet.report(0, finding())
    fleet.carry_out()
    fleet.change(0, taints=(*fleet.nodes["uid-0"].taints, evicting))
    fleet.change(1, taints=(theirs,))
    fleet.change(2, taints=(theirs,), annotations={STATE_ANNOTATION: "edited by hand"})
    fleet.planner.paused = "unmarked"
    plan = fleet.planner.removal_plan()
    # An invalid record explains nothing: all of these taints are removed.
    assert [(desired.name, desired.taints) for desired in plan.nodes] == [
        ("node-0", (evicting,)),
        ("node-2", ()),
    ]
    fleet.write(plan)
    assert fleet.nodes["uid-1"].taints == (theirs,)


def test_restored_incidents_continue_and_those_of_deleted_nodes_end() -> None:
    fleet = Fleet(2)
    fleet.report(0, finding())
    fleet.carry_out()
    [incident] = fleet.planner.tracker.recorded.by_uid["uid-0"].values()
    fleet.restart(incidents=[incident, replace(incident, name="lost", uid="uid-77")])
    fleet.after(5.0)
    plan = fleet.carry_out()
    assert [(incident.name, incident.state) for incident in plan.incidents] == [
        ("lost", IncidentState.RESOLVED)
    ]
    assert fleet.planner.tracker.recorded.by_uid["uid-0"][incident.name] == incident


def test_a_restored_incident_stays_until_its_node_reports() -> None:
    fleet = Fleet(1, replace(AT_ONCE, mode=Mode.OBSERVE))
    fleet.report(0, finding())
    [incident] = fleet.carry_out().incidents
    assert incident.state == IncidentState.DRY_RUN

    fleet.planner = ClusterPlanner(fleet.policy, CHECKS)
    fleet.planner.restore_incidents([incident])
    fleet.see(fleet.nodes["uid-0"])
    assert fleet.plan().incidents == ()
    fleet.report(0, finding())
    assert fleet.carry_out().incidents == ()
    fleet.report(0)
    [over] = fleet.carry_out().incidents
    assert (over.state, over.occurrences) == (IncidentState.RESOLVED, 1)


def test_a_marked_node_is_charged_though_its_driver_is_dead_and_its_agent_silent() -> None:
    fleet = Fleet(40, replace(AT_ONCE, budget=replace(WIDE, fleet=0.05)))
    for number in range(2):
        fleet.report(number, finding())
    fleet.carry_out()
    for number in range(2):
        fleet.change(number, gpus=0)
        del fleet.reports[f"uid-{number}"]
    fleet.restart()
    fleet.report(2, finding())
    fleet.carry_out()
    assert fleet.marked() == [0, 1]


def test_an_earlier_write_does_not_confirm_a_pending_one() -> None:
    fleet = Fleet(20, replace(AT_ONCE, budget=replace(WIDE, fleet=0.05)))
    fleet.report(0, finding())
    fleet.carry_out()
    fleet.report(0)
    away = fleet.issue()
    fleet.report(0, finding("gpu-ecc"))
    again = fleet.issue()
    assert again.nodes
    fleet.planner.record_written("uid-0", away.nodes[0].record)
    fleet.mark(away.nodes[0])
    fleet.report(1, finding())
    assert fleet.plan().nodes == ()


def test_the_data_of_one_agent_is_bounded_and_its_mark_is_released() -> None:
    for found in (
        [finding(target=f"gpu/0000:3b:00/nvlink/{number}") for number in range(3000)],
        [finding(target=f"port/{number}", targets=("x" * 200,) * 64) for number in range(128)],
        [finding(check=f"a check of its own {number}" * 9, target="node") for number in range(128)],
    ):
        fleet = Fleet(20)
        fleet.report(0, *found)
        fleet.carry_out()
        assert fleet.marked() == [0]
        record = decode_record(fleet.nodes["uid-0"].annotations[STATE_ANNOTATION])
        assert record is not None
        assert len(fleet.nodes["uid-0"].annotations[STATE_ANNOTATION]) < 40_000
        assert fleet.plan().nodes == ()
        fleet.restart()
        slots = {*found[0].targets, *(active.target for active in found)}
        fleet.report(0, proven=(in_order((active.check for active in found), slots),))
        fleet.carry_out()
        assert fleet.marked() == []


def test_ages_and_families_may_have_any_value() -> None:
    fleet = Fleet(20)
    fleet.report(0, finding(age=1.7e308, family="gp\u00fc\u00b2"))
    plan = fleet.carry_out()
    assert fleet.taints(0) == ["nodeguard.dev/quarantine=gp"]
    assert [incident.first_seen for incident in plan.incidents] == [0.0]
    fleet.report(1, finding(age=1.7e308, health=Health.WARNING))
    assert [incident.first_seen for incident in fleet.plan().incidents] == [0.0]


def test_interned_tuples_are_bounded() -> None:
    shared = TupleInterner()
    for number in range(300):
        shared(tuple(f"{number} {at}" for at in range(1000)))
    assert sum(map(len, shared._interned)) < 100_000
    first = ("a", "b")
    assert shared(first) is shared(("a", "b")[:2])


def test_a_taint_that_was_never_written_was_not_removed() -> None:
    fleet = Fleet(1, replace(AT_ONCE, marks=MarkWrites(taint=False)))
    fleet.report(0, finding())
    fleet.carry_out()
    fleet.report(0, proven=())
    for policy in (AT_ONCE, replace(AT_ONCE, marks=MarkWrites(taint=False)), AT_ONCE):
        fleet.planner.set_policy(policy)
        assert fleet.carry_out().released == ()
    assert fleet.marked() == [0]


def test_a_device_that_comes_back_is_marked_again() -> None:
    fleet = Fleet(20, replace(AT_ONCE, budget=replace(WIDE, check=CheckLimit(new=1, within=600.0))))
    fleet.publish(0)
    fleet.report(0, finding(component=""))
    fleet.carry_out()
    fleet.planner.update_devices("node-0", fleet.devices["node-0"][1:])
    plan = fleet.carry_out()
    assert [mark.reason for _, mark in plan.released] == ["gone"]
    assert (fleet.rules, fleet.marked()) == ({}, [])
    fleet.publish(0)
    fleet.carry_out()
    assert fleet.rules == {}
    fleet.after(601.0)
    fleet.carry_out()
    assert [device_rule.device for device_rule in fleet.rules.values()] == ["gpu-0"]


def test_a_clock_that_was_set_back_delays_no_mark() -> None:
    fleet = Fleet(1, replace(AT_ONCE, grace=GracePeriods(5.0, 60.0)))
    fleet.report(0, finding(age=0.0))
    fleet.carry_out()
    assert fleet.marked() == []
    fleet.wall -= 7200.0
    fleet.after(6.0)
    fleet.carry_out()
    assert fleet.marked() == [0]


def test_forgotten_charges_leave_the_budgets() -> None:
    fleet = Fleet(1, replace(AT_ONCE, soak=SoakPeriod(0.0, 0.0, 60.0)))
    for _ in range(3):
        fleet.report(0, finding())
        fleet.carry_out()
        fleet.report(0)
        fleet.carry_out()
        fleet.after(61.0)
        fleet.carry_out()
    assert not any(fleet.planner.state.budgets._new.values())


def test_an_edited_record_has_a_charge_if_it_has_a_cause() -> None:
    fleet = Fleet(20, replace(AT_ONCE, budget=replace(WIDE, fleet=0.05)))
    fleet.report(0, finding())
    fleet.carry_out()
    whole = decode_record(fleet.nodes["uid-0"].annotations[STATE_ANNOTATION]) or MarkRecord()
    fleet.change(0, annotations={STATE_ANNOTATION: encode_record(replace(whole, charge=None))})
    fleet.report(1, finding())
    fleet.carry_out()
    assert fleet.marked() == [0]
    fleet.change(0, annotations={STATE_ANNOTATION: encode_record(replace(whole, causes=()))}, taints=())
    fleet.report(0)
    fleet.carry_out()
    assert fleet.marked() == [1]


def test_a_late_report_counts_after_a_heartbeat_confirms_it() -> None:
    fleet = Fleet(1)
    fleet.report(0, finding())
    fleet.carry_out()
    fleet.planner.record_report(
        "uid-0", replace(fleet.reports["uid-0"], findings=(), passing=(in_order(),), age=900.0), fleet.now
    )
    fleet.carry_out()
    assert fleet.marked() == [0]
    fleet.planner.record_heartbeat("uid-0", fleet.now)
    fleet.carry_out()
    assert fleet.marked() == []
    fleet.planner.record_report("uid-0", replace(fleet.reports["uid-0"], age=900.0), fleet.now)
    fleet.carry_out()
    assert fleet.marked() == []
    fleet.planner.record_heartbeat("uid-0", fleet.now)
    fleet.carry_out()
    assert fleet.marked() == [0]


def effects(fleet: Fleet) -> set[str]:
    """Carry out a plan, and return what its Events report of the marks."""
    messages = (event.message for event in fleet.carry_out().events)
    return {message.partition("; ")[2].partition("; to do: ")[0] for message in messages}


def test_a_changed_reason_of_a_withheld_mark_is_reported() -> None:
    fleet = Fleet(20, replace(AT_ONCE, grace=GracePeriods(60.0, 60.0), budget=replace(WIDE, fleet=0.05)))
    for number in range(2):
        fleet.report(number, finding(age=0.0))
    fleet.after(60.0)
    assert effects(fleet) == {
        "new work is kept off node node-0",
        "node node-1 is not marked: fleet budget has reached its limit: 1 of 1 node quarantined",
    }
    fleet.planner.paused = "paused by alice: a bad driver"
    assert effects(fleet) == {"node node-1 is not marked: paused by alice: a bad driver"}


def test_a_taint_in_removal_is_not_foreign() -> None:
    fleet = Fleet(2)
    fleet.report(0, finding())
    fleet.after(1.0)
    fleet.carry_out()
    fleet.report(0)
    fleet.after(1.0)
    plan = fleet.issue()
    [gone] = plan.nodes
    assert gone.taints == ()
    # Before that is written, there is news.
    fleet.report(0, finding("gpu-hot", health=Health.SUSPECT))
    fleet.after(1.0)
    [node] = fleet.plan().nodes
    assert [taint.key for taint in node.taints] == [Mark.SUSPECT.key]
