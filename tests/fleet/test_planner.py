from __future__ import annotations

from msgspec.structs import replace

from nodeguard.fleet.heard import Shared
from nodeguard.fleet.record import read, written
from nodeguard.model.finding import Health, Knowledge
from nodeguard.model.incident import State
from nodeguard.model.mark import HOLD, MAINTENANCE, STATE, Record
from nodeguard.model.policy import Budget, CheckLimit, Hold, Mode, Policy, Settle, Soak, View, Writes
from tests.fleet.scene import AT_ONCE, WIDE, Fleet, finding, foreign, in_order

QUARANTINE = "nodeguard.dev/quarantine=gpu-bus"


def states(fleet: Fleet) -> dict[str, State]:
    return {one.resource: one.state for told in fleet.planner.incidents.values() for one in told.values()}


def test_a_fatal_finding_becomes_a_taint_a_condition_and_an_incident() -> None:
    fleet = Fleet(3)
    fleet.say(1, finding())
    plan = fleet.carry_out()
    assert fleet.taints(1) == [QUARANTINE]
    condition = fleet.nodes["uid-1"].condition
    assert condition is not None
    assert (condition.status, condition.reason) == ("False", "Quarantined")
    [incident] = plan.incidents
    assert (incident.node, incident.cause, incident.state, incident.scope) == (
        "node-1", "gpu-lost", State.MARKED, "node node-1",
    )  # fmt: skip
    assert [event.reason for event in plan.events] == ["NodeguardMarked"]
    assert fleet.marked() == [1]


def test_a_suspect_keeps_only_gangs_away_and_a_warning_nobody() -> None:
    fleet = Fleet(2)
    fleet.say(0, finding(health=Health.SUSPECT))
    fleet.say(1, finding(health=Health.WARNING))
    fleet.carry_out()
    assert fleet.taints(0) == ["nodeguard.dev/suspect=gpu-bus"]
    assert fleet.taints(1) == []
    assert len(states(fleet)) == 1


def test_in_observe_nothing_is_written_and_it_is_said_what_would_be() -> None:
    fleet = Fleet(3, replace(AT_ONCE, mode=Mode.OBSERVE))
    fleet.say(1, finding())
    plan = fleet.carry_out()
    assert (plan.nodes, plan.rules) == ((), ())
    assert [one.state for one in plan.incidents] == [State.OBSERVED]
    assert [one.reason for one in plan.events] == ["NodeguardWouldMark"]
    assert fleet.plan().incidents == ()


def test_what_would_be_done_keeps_to_the_budget_too() -> None:
    fleet = Fleet(40, Policy(settle=Settle(0.0, 0.0)))
    for number in range(10):
        fleet.say(number, finding())
    fleet.carry_out()
    said = [one.state for told in fleet.planner.incidents.values() for one in told.values()]
    assert (said.count(State.OBSERVED), said.count(State.WITHHELD)) == (2, 8)
    fleet.after(5.0)
    assert fleet.plan().incidents == ()


def test_a_mark_goes_for_proof_and_a_soak_twice_as_long_each_time() -> None:
    fleet = Fleet(1, replace(AT_ONCE, soak=Soak(600.0, 28_800.0, 86_400.0)))
    for soak in (600.0, 1200.0, 2400.0):
        fleet.say(0, finding())
        fleet.carry_out()
        fleet.after(3600.0)
        assert fleet.marked() == [0]
        fleet.say(0)
        fleet.carry_out()
        assert set(states(fleet).values()) == {State.RECOVERING}
        fleet.after(soak - 1.0)
        fleet.carry_out()
        assert fleet.marked() == [0]
        fleet.after(1.0)
        fleet.carry_out()
        assert fleet.marked() == []
    condition = fleet.nodes["uid-0"].condition
    assert condition is not None
    assert condition.status == "True"
    fleet.after(86_400.0)
    fleet.carry_out()
    assert fleet.nodes["uid-0"].annotations == {}


def test_nothing_goes_because_it_is_not_found_any_more() -> None:
    fleet = Fleet(1)
    fleet.say(0, finding())
    fleet.carry_out()
    for proven in ((), (in_order(slots=("gpu/0000:3c:00",)),), (in_order(checks=("port-down",)),)):
        fleet.say(0, proven=proven)
        fleet.after(100_000.0)
        fleet.carry_out()
        assert fleet.marked() == [0]
    fleet.say(0, finding(knowledge=Knowledge.STALE), proven=(in_order(),))
    fleet.carry_out()
    assert fleet.marked() == [0]


def test_a_soak_begins_anew_when_the_fault_comes_back() -> None:
    fleet = Fleet(1, replace(AT_ONCE, soak=Soak(600.0, 28_800.0, 86_400.0)))
    fleet.say(0, finding())
    fleet.carry_out()
    fleet.say(0)
    fleet.carry_out()
    fleet.after(500.0)
    fleet.say(0, finding())
    fleet.carry_out()
    fleet.say(0)
    fleet.carry_out()
    fleet.after(500.0)
    fleet.carry_out()
    assert fleet.marked() == [0]


def test_every_cause_needs_its_own_proof() -> None:
    fleet = Fleet(1)
    fleet.say(0, finding(), finding("gpu-ecc", "gpu/0000:3c:00"))
    fleet.carry_out()
    fleet.say(0, finding("gpu-ecc", "gpu/0000:3c:00"), proven=(in_order(),))
    fleet.carry_out()
    assert fleet.marked() == [0]
    fleet.say(0, proven=(in_order(slots=("gpu/0000:3b:00", "gpu/0000:3c:00")),))
    fleet.carry_out()
    assert fleet.marked() == []


def test_a_finding_of_many_slots_is_over_when_each_of_them_is() -> None:
    fleet = Fleet(1)
    fleet.say(0, finding(target="node", slots=("gpu/0000:3b:00", "gpu/0000:3c:00")))
    fleet.carry_out()
    fleet.say(0)
    fleet.carry_out()
    assert fleet.marked() == [0]
    fleet.say(0, proven=(in_order(slots=("gpu/0000:3b:00",)), in_order(slots=("gpu/0000:3c:00",))))
    fleet.carry_out()
    assert fleet.marked() == []


def test_the_worst_come_first_and_the_rest_is_withheld_with_a_reason() -> None:
    fleet = Fleet(40, replace(AT_ONCE, budget=replace(WIDE, fleet=0.05)))
    for number in range(4):
        fleet.say(number, finding(age=100.0 - number))
    fleet.say(4, finding(age=1.0), finding("gpu-ecc", age=1.0))
    fleet.say(5, finding(health=Health.SUSPECT, age=1000.0))
    fleet.carry_out()
    assert fleet.marked() == [0, 4]
    reasons = {one.why for found in fleet.planner.outcomes.values() for one in found if one.why}
    assert reasons == {
        "fleet: 2 nodes may be out",
        "fleet: 1 nodes may be out, the rest is reserved for what is fatal",
    }


def test_one_check_takes_out_five_and_then_fifteen() -> None:
    fleet = Fleet(7500 // 10, replace(AT_ONCE, budget=replace(WIDE, check=CheckLimit())))
    for number in range(100):
        fleet.say(number, finding())
    counts = []
    for _ in range(6):
        fleet.carry_out()
        counts.append(len(fleet.marked()))
        fleet.after(300.0)
    assert counts == [5, 5, 10, 10, 15, 15]


def test_what_was_given_back_still_counts_as_new() -> None:
    fleet = Fleet(20, replace(AT_ONCE, budget=replace(WIDE, check=CheckLimit(("*",), 1, 600.0, 15))))
    fleet.say(0, finding())
    fleet.carry_out()
    fleet.say(0)
    fleet.say(1, finding())
    fleet.carry_out()
    fleet.restart()
    fleet.carry_out()
    assert fleet.marked() == []
    fleet.after(601.0)
    fleet.carry_out()
    assert fleet.marked() == [1]


def test_a_domain_and_a_pool_have_budgets_of_their_own() -> None:
    views = (View("rack", ("rack",)),)
    fleet = Fleet(32, replace(AT_ONCE, views=views, budget=replace(WIDE, domain=0.25)))
    for number in range(8):
        fleet.say(number, finding())
    fleet.carry_out()
    assert len(fleet.marked()) == 2
    assert "rack/r0: 2 nodes may be out" in {
        one.why for found in fleet.planner.outcomes.values() for one in found
    }


def test_a_node_that_a_person_cordoned_costs_no_capacity() -> None:
    fleet = Fleet(20, replace(AT_ONCE, budget=replace(WIDE, fleet=0.05)))
    fleet.change(0, unschedulable=True)
    for number in range(3):
        fleet.say(number, finding())
    fleet.carry_out()
    assert len(fleet.marked()) == 2
    assert 0 in fleet.marked()
    fleet.say(0)
    fleet.carry_out()
    assert fleet.nodes["uid-0"].unschedulable


def test_a_smaller_fleet_releases_nothing_and_marks_nothing() -> None:
    fleet = Fleet(40, replace(AT_ONCE, budget=replace(WIDE, fleet=0.10)))
    for number in range(4):
        fleet.say(number, finding())
    fleet.carry_out()
    for number in range(20, 40):
        fleet.planner.gone(f"uid-{number}")
        del fleet.nodes[f"uid-{number}"], fleet.reports[f"uid-{number}"]
    fleet.say(5, finding())
    fleet.carry_out()
    assert fleet.marked() == [0, 1, 2, 3]


def test_a_check_that_is_renamed_frees_nothing() -> None:
    budget = Budget(1.0, 0.0, 1.0, 1.0, 1.0, CheckLimit(("*",), 5, 600.0, 5))
    fleet = Fleet(50, replace(AT_ONCE, budget=budget))
    for number in range(5):
        fleet.say(number, finding("gpu-gone"))
    fleet.carry_out()
    fleet.after(3600.0)
    for number in range(10):
        fleet.say(number, finding("gpu-lost"))
    fleet.carry_out()
    assert fleet.marked() == [0, 1, 2, 3, 4]


def test_hold_maintenance_pause_and_stale_each_bar_a_mark() -> None:
    fleet = Fleet(6)
    fleet.change(0, annotations={HOLD: "Ann looks at it"})
    fleet.change(1, annotations={MAINTENANCE: "new firmware"})
    for number in range(2):
        fleet.say(number, finding())
    fleet.say(2, finding(knowledge=Knowledge.UNKNOWN))
    fleet.carry_out()
    assert fleet.marked() == []
    assert [one.why for found in fleet.planner.outcomes.values() for one in found] == [
        "held: Ann looks at it",
        "under maintenance: new firmware",
    ]
    fleet.planner.paused = "paused by Ann"
    fleet.say(3, finding())
    fleet.carry_out()
    assert fleet.marked() == []
    fleet.planner.paused = ""
    fleet.carry_out()
    assert fleet.marked() == [3]


def test_a_hold_keeps_a_mark_as_it_is() -> None:
    fleet = Fleet(1)
    fleet.say(0, finding())
    fleet.carry_out()
    fleet.change(0, annotations={**fleet.nodes["uid-0"].annotations, HOLD: ""})
    fleet.say(0)
    fleet.after(10.0)
    fleet.carry_out()
    assert fleet.marked() == [0]


def test_a_held_check_gives_back_what_it_alone_took_out() -> None:
    fleet = Fleet(3)
    fleet.say(0, finding())
    fleet.say(1, finding(), finding("gpu-ecc"))
    fleet.carry_out()
    fleet.planner.adopt(replace(AT_ONCE, holds=(Hold(checks=("gpu-lost",), why="misfires"),)))
    plan = fleet.carry_out()
    assert fleet.marked() == [1]
    assert {one.why for _, one in plan.freed} == {"retracted"}


def test_silence_of_a_node_proves_nothing_and_marks_nothing() -> None:
    fleet = Fleet(30)
    fleet.say(0, finding())
    fleet.carry_out()
    fleet.say(0)
    fleet.say(1, finding())
    fleet.mono += 46.0
    fleet.wall += 46.0
    for number in range(2, 30):
        fleet.planner.beat(f"uid-{number}", fleet.now)
    fleet.planner.tick(fleet.now)
    assert fleet.planner.silence.silent == {"uid-0", "uid-1"}
    fleet.carry_out()
    assert fleet.marked() == [0]


def test_many_silent_nodes_freeze_new_marks_unless_a_domain_explains_them() -> None:
    views = (View("rack", ("rack",)),)
    for lost, marked in ((range(8), [20]), (range(0, 24, 3), [])):
        fleet = Fleet(32, replace(AT_ONCE, views=views))
        fleet.mono += 46.0
        for number in set(range(32)) - set(lost):
            fleet.planner.beat(f"uid-{number}", fleet.now)
        fleet.planner.tick(fleet.now)
        fleet.say(20, finding())
        fleet.carry_out()
        assert fleet.marked() == marked


def test_foreign_taints_stay_and_one_of_ours_that_a_person_set_too() -> None:
    fleet = Fleet(2)
    fleet.change(0, taints=(foreign(), foreign("nodeguard.dev/quarantine", "by-hand")))
    fleet.change(1, taints=(foreign(),))
    fleet.say(1, finding())
    fleet.carry_out()
    fleet.say(1)
    fleet.carry_out()
    assert fleet.taints(0) == ["nvidia.com/gpu=present", "nodeguard.dev/quarantine=by-hand"]
    assert fleet.taints(1) == ["nvidia.com/gpu=present"]


def test_a_taint_that_a_person_took_away_comes_back_only_while_the_fault_is_there() -> None:
    fleet = Fleet(1)
    fleet.say(0, finding())
    fleet.carry_out()
    fleet.change(0, taints=())
    fleet.carry_out()
    assert fleet.marked() == [0]
    fleet.say(0, proven=())
    fleet.carry_out()
    assert fleet.marked() == [0]
    fleet.change(0, taints=())
    fleet.carry_out()
    assert fleet.marked() == []


def test_a_cordon_of_ours_goes_and_a_persons_stays() -> None:
    fleet = Fleet(3, replace(AT_ONCE, marks=Writes(cordon=True)))
    fleet.change(1, unschedulable=True)
    for number in range(3):
        fleet.say(number, finding())
    fleet.carry_out()
    assert all(node.unschedulable for node in fleet.nodes.values())
    fleet.change(2, unschedulable=False)
    fleet.carry_out()
    assert not fleet.nodes["uid-2"].unschedulable
    fleet.restart()
    for number in range(3):
        fleet.say(number)
    fleet.carry_out()
    assert [node.unschedulable for node in fleet.nodes.values()] == [False, True, False]
    assert fleet.marked() == []


def test_a_restart_comes_to_the_same_plan() -> None:
    fleet = Fleet(100, Policy(mode=Mode.ENFORCE, settle=Settle(0.0, 0.0)))
    for number in range(20):
        fleet.say(number, finding(age=100.0 + number))
    fleet.carry_out()
    before = fleet.marked()
    assert len(before) == 5
    fleet.restart()
    assert fleet.plan().nodes == ()
    fleet.carry_out()
    assert fleet.marked() == before


def test_a_plan_that_is_on_its_way_counts() -> None:
    fleet = Fleet(20, replace(AT_ONCE, budget=replace(WIDE, fleet=0.05)))
    fleet.say(0, finding(age=10.0))
    first = fleet.plan()
    fleet.planner.issued(first)
    fleet.say(1, finding(age=1000.0))
    second = fleet.plan()
    assert [one.name for one in first.nodes] == ["node-0"]
    assert second.nodes == ()
    fleet.planner.failed("uid-0")
    assert [one.name for one in fleet.plan().nodes] == ["node-1"]


def test_a_node_of_the_same_name_is_another_one() -> None:
    fleet = Fleet(2)
    fleet.say(0, finding())
    fleet.carry_out()
    other = replace(fleet.nodes.pop("uid-0"), uid="uid-9", taints=(), annotations={}, condition=None)
    fleet.reports.pop("uid-0")
    fleet.see(other)
    plan = fleet.carry_out()
    assert [(one.uid, one.state, one.detail) for one in plan.incidents] == [
        ("uid-0", State.RESOLVED, "its Node is gone")
    ]
    assert fleet.taints(9) == []


def test_a_fault_of_one_gpu_marks_that_device_alone() -> None:
    fleet = Fleet(20, replace(AT_ONCE, budget=replace(WIDE, fleet=0.05)))
    fleet.publish(0)
    fleet.say(0, *(finding(target=f"gpu/0000:{0x3B + at:02x}:00", part="") for at in range(2)))
    fleet.carry_out()
    assert fleet.marked() == []
    assert sorted(rule.device for rule in fleet.rules.values()) == ["gpu-0", "gpu-1"]
    assert set(states(fleet).values()) == {State.MARKED}
    assert ("fleet", 0.25, 1.0) in fleet.planner.roster.ledgers.told()
    fleet.restart()
    assert not fleet.plan().rules
    fleet.say(0, proven=(in_order(slots=("gpu/0000:3b:00", "gpu/0000:3c:00")),))
    fleet.carry_out()
    assert fleet.rules == {}


def test_a_fault_of_a_link_or_of_an_unknown_gpu_marks_the_node() -> None:
    fleet = Fleet(2)
    fleet.publish(0)
    fleet.publish(1)
    fleet.say(0, finding(target="gpu/0000:3b:00/nvlink/3"))
    fleet.say(1, finding(target="gpu/0000:ff:00", part="GPU-9"))
    fleet.carry_out()
    assert (fleet.marked(), fleet.rules) == ([0, 1], {})


def test_rules_of_what_is_gone_are_removed() -> None:
    fleet = Fleet(2)
    for number in range(2):
        fleet.publish(number)
        fleet.say(number, finding())
    fleet.carry_out()
    assert len(fleet.rules) == 2
    fleet.planner.devices("node-0", ())
    fleet.say(0, proven=())
    assert fleet.plan().rules_gone == ()
    fleet.planner.devices("node-0", fleet.devices["node-0"][1:])
    fleet.planner.gone("uid-1")
    assert len(fleet.plan().rules_gone) == 2


def test_unmark_leaves_nothing() -> None:
    fleet = Fleet(3, replace(AT_ONCE, marks=Writes(cordon=True)))
    fleet.publish(2)
    for number in range(3):
        fleet.say(number, finding())
    fleet.change(1, taints=(foreign(),))
    fleet.carry_out()
    fleet.planner.paused = "unmarked"
    fleet.write(fleet.planner.unmark())
    fleet.carry_out()
    assert fleet.rules == {}
    for node in fleet.nodes.values():
        assert (node.annotations, node.condition, node.unschedulable) == ({}, None, False)
    assert fleet.taints(1) == ["nvidia.com/gpu=present"]


def test_incidents_from_before_go_on_and_those_of_nodes_that_are_gone_end() -> None:
    fleet = Fleet(2)
    fleet.say(0, finding())
    fleet.carry_out()
    [known] = fleet.planner.incidents["uid-0"].values()
    fleet.restart()
    fleet.planner.recall([known, replace(known, name="lost", uid="uid-77")])
    fleet.after(5.0)
    plan = fleet.carry_out()
    assert [(one.name, one.state) for one in plan.incidents] == [("lost", State.RESOLVED)]
    assert fleet.planner.incidents["uid-0"][known.name] == known


def test_a_rule_that_somebody_edited_stays_and_stops_nothing() -> None:
    fleet = Fleet(2)
    fleet.publish(0)
    fleet.say(0, finding())
    fleet.carry_out()
    [rule] = fleet.rules.values()
    for state in ("", "{", '{"causes":[]}', rule.state.replace("quarantine", "suspect")):
        fleet.rules[rule.name] = replace(rule, state=state)
        fleet.restart()
        fleet.say(0)
        fleet.say(1, finding())
        plan = fleet.carry_out()
        assert plan.rules_gone == ()
        assert fleet.marked() == [1]
    fleet.say(0, finding())
    fleet.carry_out()
    assert read(fleet.rules[rule.name].state)


def test_a_node_that_is_written_tells_nothing_of_its_devices() -> None:
    fleet = Fleet(20, replace(AT_ONCE, budget=replace(WIDE, fleet=0.05)))
    fleet.publish(0)
    every = [f"gpu/0000:{0x3B + at:02x}:00" for at in range(8)]
    fleet.say(0, *(finding(target=slot, part="") for slot in every[:7]))
    fleet.carry_out()
    first = tuple(finding(target=slot, part="") for slot in every[1:])
    fleet.say(0, *first, proven=(in_order(slots=every[:1]),))
    plan = fleet.plan()
    assert (len(plan.nodes), len(plan.rules), len(plan.rules_gone)) == (1, 1, 1)
    fleet.planner.issued(plan)
    fleet.planner.written("uid-0", plan.nodes[0].state)
    fleet.mark(plan.nodes[0])
    fleet.publish(1)
    fleet.say(1, *(finding(target=slot, part="") for slot in every))
    assert fleet.plan().rules == ()
    assert fleet.plan().nodes == ()


def test_a_mark_of_a_device_is_given_back_once_however_late_its_rule_goes() -> None:
    fleet = Fleet(1)
    fleet.publish(0)
    fleet.say(0, finding())
    fleet.carry_out()
    fleet.say(0)
    plan = fleet.plan()
    fleet.planner.issued(plan)
    for one in plan.nodes:
        fleet.planner.written(one.uid, one.state)
        fleet.mark(one)
    assert fleet.plan().nodes == ()
    fleet.restart()
    plan = fleet.plan()
    assert (plan.nodes, len(plan.rules_gone)) == ((), 1)
    [past] = (read(fleet.nodes["uid-0"].annotations[STATE]) or Record()).past
    assert past.times == 1


def test_a_marked_node_is_charged_though_its_driver_is_dead_and_its_agent_silent() -> None:
    fleet = Fleet(40, replace(AT_ONCE, budget=replace(WIDE, fleet=0.05)))
    for number in range(2):
        fleet.say(number, finding())
    fleet.carry_out()
    for number in range(2):
        fleet.change(number, gpus=0)
        del fleet.reports[f"uid-{number}"]
    fleet.restart()
    fleet.say(2, finding())
    fleet.carry_out()
    assert fleet.marked() == [0, 1]


def test_what_was_written_before_says_nothing_of_what_is_on_its_way() -> None:
    fleet = Fleet(20, replace(AT_ONCE, budget=replace(WIDE, fleet=0.05)))
    fleet.say(0, finding())
    fleet.carry_out()
    fleet.say(0)
    away = fleet.plan()
    fleet.planner.issued(away)
    fleet.say(0, finding("gpu-ecc"))
    fleet.planner.issued(again := fleet.plan())
    assert again.nodes
    fleet.planner.written("uid-0", away.nodes[0].state)
    fleet.mark(away.nodes[0])
    fleet.say(1, finding())
    assert fleet.plan().nodes == ()


def test_what_one_agent_says_has_a_bound_and_its_mark_is_given_back() -> None:
    for found in (
        [finding(target=f"gpu/0000:3b:00/nvlink/{number}") for number in range(3000)],
        [finding(target=f"port/{number}", slots=("x" * 200,) * 64) for number in range(128)],
        [finding(check=f"a check of its own {number}" * 9, target="node") for number in range(128)],
    ):
        fleet = Fleet(20)
        fleet.say(0, *found)
        fleet.carry_out()
        assert fleet.marked() == [0]
        record = read(fleet.nodes["uid-0"].annotations[STATE])
        assert record is not None
        assert len(fleet.nodes["uid-0"].annotations[STATE]) < 40_000
        assert fleet.plan().nodes == ()
        fleet.restart()
        slots = {*found[0].slots, *(one.target for one in found)}
        fleet.say(0, proven=(in_order((one.check for one in found), slots),))
        fleet.carry_out()
        assert fleet.marked() == []


def test_ages_and_families_may_be_anything() -> None:
    fleet = Fleet(20)
    fleet.say(0, finding(age=1.7e308, family="gp\u00fc\u00b2"))
    plan = fleet.carry_out()
    assert fleet.taints(0) == ["nodeguard.dev/quarantine=gp"]
    assert [one.since for one in plan.incidents] == [0.0]
    fleet.say(1, finding(age=1.7e308, health=Health.WARNING))
    assert [one.since for one in fleet.plan().incidents] == [0.0]


def test_words_that_are_kept_once_are_not_kept_for_ever() -> None:
    shared = Shared()
    for number in range(300):
        shared(tuple(f"{number} {at}" for at in range(1000)))
    assert sum(map(len, shared._kept)) < 100_000
    first = ("a", "b")
    assert shared(first) is shared(("a", "b")[:2])


def test_a_taint_that_was_never_written_was_not_taken_away() -> None:
    fleet = Fleet(1, replace(AT_ONCE, marks=Writes(taint=False)))
    fleet.say(0, finding())
    fleet.carry_out()
    fleet.say(0, proven=())
    for policy in (AT_ONCE, replace(AT_ONCE, marks=Writes(taint=False)), AT_ONCE):
        fleet.planner.adopt(policy)
        assert fleet.carry_out().freed == ()
    assert fleet.marked() == [0]


def test_a_device_that_comes_back_is_marked_again() -> None:
    fleet = Fleet(20, replace(AT_ONCE, budget=replace(WIDE, check=CheckLimit(new=1, within=600.0))))
    fleet.publish(0)
    fleet.say(0, finding(part=""))
    fleet.carry_out()
    fleet.planner.devices("node-0", fleet.devices["node-0"][1:])
    plan = fleet.carry_out()
    assert [one.why for _, one in plan.freed] == ["gone"]
    assert (fleet.rules, fleet.marked()) == ({}, [])
    fleet.publish(0)
    fleet.carry_out()
    assert fleet.rules == {}
    fleet.after(601.0)
    fleet.carry_out()
    assert [one.device for one in fleet.rules.values()] == ["gpu-0"]


def test_a_clock_that_is_put_back_keeps_nothing_from_being_marked() -> None:
    fleet = Fleet(1, replace(AT_ONCE, settle=Settle(5.0, 60.0)))
    fleet.say(0, finding(age=0.0))
    fleet.carry_out()
    assert fleet.marked() == []
    fleet.wall -= 7200.0
    fleet.after(6.0)
    fleet.carry_out()
    assert fleet.marked() == [0]


def test_what_is_forgotten_on_nodes_is_forgotten_in_ledgers() -> None:
    fleet = Fleet(1, replace(AT_ONCE, soak=Soak(0.0, 0.0, 60.0)))
    for _ in range(3):
        fleet.say(0, finding())
        fleet.carry_out()
        fleet.say(0)
        fleet.carry_out()
        fleet.after(61.0)
        fleet.carry_out()
    assert not any(fleet.planner.roster.ledgers._new.values())


def test_a_record_that_somebody_edited_is_charged_just_where_it_has_a_cause() -> None:
    fleet = Fleet(20, replace(AT_ONCE, budget=replace(WIDE, fleet=0.05)))
    fleet.say(0, finding())
    fleet.carry_out()
    whole = read(fleet.nodes["uid-0"].annotations[STATE]) or Record()
    fleet.change(0, annotations={STATE: written(replace(whole, charge=None))})
    fleet.say(1, finding())
    fleet.carry_out()
    assert fleet.marked() == [0]
    fleet.change(0, annotations={STATE: written(replace(whole, causes=()))}, taints=())
    fleet.say(0)
    fleet.carry_out()
    assert fleet.marked() == [1]
