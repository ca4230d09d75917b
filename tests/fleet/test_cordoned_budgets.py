"""Nodes under a cordon of the operators: they keep no budget of a check from other nodes."""

from __future__ import annotations

from msgspec.structs import replace

from nodeguard.model.incident import IncidentState
from nodeguard.model.policy import Budget, CheckLimit
from tests.fleet.scene import AT_ONCE, WIDE, Fleet, finding

DEFAULTS = CheckLimit(5, 600.0, 15)
POLICY = replace(AT_ONCE, budget=replace(WIDE, check=DEFAULTS))


def maintenance(size: int = 40, cordoned: int = 28, budget: Budget = POLICY.budget) -> Fleet:
    """A switch is replaced: the ports of its cordoned nodes are down."""
    fleet = Fleet(size, replace(POLICY, budget=budget))
    for number in range(cordoned):
        fleet.change(number, unschedulable=True)
    for number in range(cordoned):
        fleet.report(number, finding("port-down"))
    settle(fleet)
    return fleet


def settle(fleet: Fleet) -> None:
    """Carry out the plans until the budgets of new marks allow no more."""
    for _ in range(6):
        fleet.carry_out()
        fleet.after(DEFAULTS.within)


def test_marks_of_cordoned_nodes_keep_no_budget_from_a_fault_elsewhere() -> None:
    fleet = maintenance()
    for number in range(30, 35):
        fleet.report(number, finding("port-down"))
    fleet.carry_out()
    assert {30, 31, 32, 33, 34} <= set(fleet.marked())


def test_a_check_marks_no_more_cordoned_nodes_than_others() -> None:
    fleet = maintenance()
    assert len(fleet.marked()) == DEFAULTS.active
    decisions = [decision for of_node in fleet.planner.tracker.decisions.values() for decision in of_node]
    reasons = {decision.reason for decision in decisions if decision.state == IncidentState.WITHHELD}
    (reason,) = reasons
    assert (
        reason == "budget of check port-down for cordoned nodes has reached its limit: 15 of 15 active marks"
    )


def test_an_uncordoned_node_uses_the_budget_of_its_check_again() -> None:
    fleet = maintenance()
    for number in range(28):
        fleet.change(number, unschedulable=False)
    fleet.report(30, finding("port-down"))
    settle(fleet)
    assert 30 not in fleet.marked()
    assert len(fleet.marked()) == DEFAULTS.active
    fleet.restart()
    settle(fleet)
    assert 30 not in fleet.marked()


def test_a_restart_under_a_cordon_keeps_the_budgets() -> None:
    fleet = maintenance()
    marked = fleet.marked()
    fleet.restart()
    fleet.report(30, finding("port-down"))
    settle(fleet)
    assert fleet.marked() == [*marked, 30]
