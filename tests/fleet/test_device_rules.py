"""The plan of marks on single devices: DeviceTaintRules that are edited, late, or written apart from their Node."""

from __future__ import annotations

from msgspec.structs import replace

from nodeguard.fleet.state.node_marks import decode_record
from nodeguard.model.mark import STATE_ANNOTATION, MarkRecord
from tests.fleet.scene import AT_ONCE, WIDE, Fleet, finding, in_order


def test_an_edited_rule_stays_and_blocks_nothing() -> None:
    fleet = Fleet(2)
    fleet.publish(0)
    fleet.report(0, finding())
    fleet.carry_out()
    [rule] = fleet.rules.values()
    for state in ("", "{", '{"causes":[]}', rule.state.replace("quarantine", "suspect")):
        fleet.rules[rule.name] = replace(rule, state=state)
        fleet.restart()
        fleet.report(0)
        fleet.report(1, finding())
        plan = fleet.carry_out()
        assert plan.rules_gone == ()
        assert fleet.marked() == [1]
    fleet.report(0, finding())
    fleet.carry_out()
    assert decode_record(fleet.rules[rule.name].state)


def test_a_written_node_does_not_confirm_its_device_rules() -> None:
    fleet = Fleet(20, replace(AT_ONCE, budget=replace(WIDE, fleet=0.05)))
    fleet.publish(0)
    every = [f"gpu/0000:{0x3B + at:02x}:00" for at in range(8)]
    fleet.report(0, *(finding(target=slot, component="") for slot in every[:7]))
    fleet.carry_out()
    first = tuple(finding(target=slot, component="") for slot in every[1:])
    fleet.report(0, *first, proven=(in_order(targets=every[:1]),))
    plan = fleet.issue()
    assert (len(plan.nodes), len(plan.rules), len(plan.rules_gone)) == (1, 1, 1)
    fleet.planner.record_written("uid-0", plan.nodes[0].record)
    fleet.mark(plan.nodes[0])
    fleet.publish(1)
    fleet.report(1, *(finding(target=slot, component="") for slot in every))
    assert fleet.plan().rules == ()
    assert fleet.plan().nodes == ()


def test_a_device_mark_is_released_once_even_if_its_rule_is_deleted_late() -> None:
    fleet = Fleet(1)
    fleet.publish(0)
    fleet.report(0, finding())
    fleet.carry_out()
    fleet.report(0)
    plan = fleet.issue()
    for node in plan.nodes:
        fleet.planner.record_written(node.uid, node.record)
        fleet.mark(node)
    assert fleet.plan().nodes == ()
    fleet.restart()
    plan = fleet.plan()
    assert (plan.nodes, len(plan.rules_gone)) == ((), 1)
    [past] = (decode_record(fleet.nodes["uid-0"].annotations[STATE_ANNOTATION]) or MarkRecord()).past_charges
    assert past.occurrences == 1
