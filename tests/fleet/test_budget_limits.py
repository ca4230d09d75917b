"""The limits that `nodeguard policy check` prints are the ones that the planner enforces."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from nodeguard.cli.commands.policy import nodes_output
from nodeguard.cli.render.policy import policy_view
from nodeguard.cli.render.resources import BUDGET_TABLE
from nodeguard.fleet.budget_limits import BudgetRefusal, FleetLimits, fleet_limits, group_limit
from nodeguard.fleet.state.budget_usage import BudgetUsage, NodeUsage
from nodeguard.fleet.state.node_placement import FLEET, POOL, NodePlacement
from nodeguard.fleet_api.schema.status import BudgetView
from nodeguard.model.device import Device
from nodeguard.model.finding import Health
from nodeguard.model.incident import IncidentState
from nodeguard.model.mark import Charge, Mark
from nodeguard.model.policy import Budget, CheckLimit, Policy
from tests.cli.fleet_output import facts
from tests.fleet.scene import AT_ONCE, Fleet, finding

# A check may mark as many nodes as the other budgets allow.
DEFAULT = replace(Policy(), budget=Budget(check=CheckLimit(10**6, 600.0, 10**6)))

sizes = st.integers(1, 10_000)
shares = st.sampled_from([0.01, 0.05, 0.1, 0.29, 0.5, 1.0])
budgets = st.builds(
    Budget,
    fleet=shares,
    reserve=st.sampled_from([0.0, 0.2, 0.5, 1.0]),
    pool=st.just(1.0),
    suspect=shares,
    check=st.just(DEFAULT.budget.check),
)


class Filled:
    """Budgets that are filled node by node. groups: pools and domains that the first `size` nodes of
    the fleet are in; there are `others` more.
    """

    def __init__(self, policy: Policy, size: int, groups: tuple[str, ...] = (POOL,), others: int = 0) -> None:
        self.budgets = BudgetUsage(policy, ())
        self.placements = [
            NodePlacement(str(at), str(at), (FLEET, *groups), 8, False, "", "") for at in range(size)
        ]
        for placement in (
            *self.placements,
            *[NodePlacement("", "", (FLEET, "pool/other"), 8, False, "", "")] * others,
        ):
            self.budgets.add_node(placement)

    def fill(self, mark: Mark) -> int:
        """Mark nodes until a budget refuses; return how many were marked."""
        marked = 0
        while self.placements:
            before = NodeUsage(self.placements[-1])
            quarantined = frozenset({None}) if mark == Mark.QUARANTINE else frozenset[Device | None]()
            charges = (Charge("gpu-lost", mark, 0.0),)
            after = NodeUsage(self.placements[-1], quarantined, mark == Mark.SUSPECT, charges)
            if self.budgets.refusal(before, after, abs) is not None:
                break
            self.budgets.charge(after)
            self.placements.pop()
            marked += 1
        return marked


def printed(policy: Policy, size: int) -> str:
    return facts(policy_view("policy.yaml", policy, {}, (), size))["budget"]


@pytest.mark.slow
@settings(deadline=None, max_examples=200)
@given(sizes, budgets)
def test_every_printed_budget_is_the_enforced_one(size: int, budget: Budget) -> None:
    policy = replace(DEFAULT, budget=budget)
    limits, text = fleet_limits(budget, size), printed(policy, size)
    quarantined, suspect = Filled(policy, size).fill(Mark.QUARANTINE), Filled(policy, size).fill(Mark.SUSPECT)
    numbers = [int(number) for number in re.findall(r"(?<![\d%])\b\d+\b(?!%)", text.partition(" Also ")[0])]
    assert quarantined == min(size, limits.fleet.nodes)
    assert suspect == min(size, limits.suspect)
    # The reserve is what suspect nodes leave where the reserve is their only limit.
    unlimited = replace(DEFAULT, budget=replace(budget, suspect=1.0))
    apart = Filled(unlimited, size).fill(Mark.SUSPECT) == quarantined == 1
    reserve = 1 if apart else quarantined - Filled(unlimited, size).fill(Mark.SUSPECT)
    expected = [quarantined, size, suspect]
    assert numbers == (
        [*expected, 1] if limits.fleet.separate else [quarantined, size, limits.fleet.reserve, suspect]
    )
    assert limits.fleet.reserve == reserve
    shown = nodes_output(policy, size)
    assert shown is not None
    assert (shown.fleet, shown.reserve, shown.suspect) == (quarantined, reserve, suspect)
    assert shown.apart == limits.fleet.separate


@settings(deadline=None, max_examples=100)
@given(st.integers(2, 300), shares, st.sampled_from(["pool/a", "domain/rack/r0"]))
def test_the_printed_budget_of_a_pool_and_of_a_domain_is_the_enforced_one(
    size: int, share: float, group: str
) -> None:
    budget = Budget(1.0, 0.0, share, share, 1.0, check=DEFAULT.budget.check)
    policy, groups = replace(DEFAULT, budget=budget), (POOL, group) if "domain" in group else (group,)
    if "domain" in group:
        policy = replace(policy, budget=replace(budget, pool=1.0))
    quarantined = Filled(policy, size, groups, others=1000).fill(Mark.QUARANTINE)
    suspect = Filled(policy, size, groups, others=1000).fill(Mark.SUSPECT)
    mixed = Filled(policy, size, groups, others=1000)
    placement = mixed.placements[0]
    both = mixed.fill(Mark.SUSPECT) + mixed.fill(Mark.QUARANTINE)
    shown = {name: (used, most, beside) for name, used, most, beside in mixed.budgets.rows_of_node(placement)}
    limit = group_limit(share, size)
    assert quarantined == suspect == limit.nodes == shown[group][1]
    assert both == (2 if limit.nodes == 1 else limit.nodes)
    assert shown[group][0] + shown[group][2] == both
    # The rule for a group with a limit of 1 node is printed beside the shares.
    assert "at least 1 node each. A limit of 1 node allows 1 quarantined and 1 suspect node" in printed(
        policy, 1300
    )


@pytest.mark.slow
@settings(deadline=None, max_examples=200)
@given(sizes, budgets)
def test_suspect_nodes_leave_the_reserve_for_fatal_ones(size: int, budget: Budget) -> None:
    policy = replace(DEFAULT, budget=budget)
    filled, limits = Filled(policy, size), fleet_limits(budget, size)
    suspect = filled.fill(Mark.SUSPECT)
    quarantined = filled.fill(Mark.QUARANTINE)
    most = limits.fleet.nodes if limits.fleet.separate else limits.fleet.nodes - suspect
    assert quarantined == min(size - suspect, most)
    assert quarantined >= min(size - suspect, limits.fleet.reserve)


@given(st.integers(2, 10_000))
def test_the_default_policy_allows_a_suspect_and_a_quarantined_node_in_every_fleet(size: int) -> None:
    filled = Filled(DEFAULT, size)
    assert filled.fill(Mark.SUSPECT) >= 1
    assert filled.fill(Mark.QUARANTINE) >= 1


@given(st.integers(2, 39))
def test_the_order_of_marks_in_a_small_fleet_does_not_matter(size: int) -> None:
    filled = Filled(DEFAULT, size)
    assert (filled.fill(Mark.QUARANTINE), filled.fill(Mark.SUSPECT)) == (1, 1)


@pytest.mark.parametrize("size", [2, 3, 20, 39, 40, 41, 100])
def test_the_planner_marks_a_suspect_node_at_any_size(size: int) -> None:
    fleet = Fleet(size, replace(AT_ONCE, budget=Budget()))
    fleet.report(0, finding("gpu-ecc", health=Health.SUSPECT))
    fleet.carry_out()
    fleet.report(1, finding("gpu-lost"))
    fleet.carry_out()
    assert fleet.marked() == [0, 1]


def test_a_second_suspect_node_of_a_small_fleet_is_withheld_with_the_used_amount_and_the_limit() -> None:
    fleet = Fleet(3, replace(AT_ONCE, budget=Budget()))
    for number in range(2):
        fleet.report(number, finding("gpu-ecc", health=Health.SUSPECT))
    fleet.report(2, finding("gpu-lost"))
    fleet.carry_out()
    reasons = [
        decision.reason
        for found in fleet.planner.tracker.decisions.values()
        for decision in found
        if decision.reason
    ]
    assert reasons == ["suspect budget has reached its limit: 1 of 1 node suspect"]


def test_a_third_fatal_node_is_withheld_with_the_used_amount_and_the_limit() -> None:
    fleet = Fleet(3, replace(AT_ONCE, budget=Budget()))
    for number in range(3):
        fleet.report(number, finding("gpu-lost"))
    fleet.carry_out()
    outcomes = [decision for found in fleet.planner.tracker.decisions.values() for decision in found]
    withheld = [decision for decision in outcomes if decision.state == IncidentState.WITHHELD]
    assert [decision.reason for decision in withheld] == [
        "fleet budget has reached its limit: 1 of 1 node quarantined"
    ] * 2
    assert {decision.refusal.limit_message() for decision in withheld if decision.refusal} == {
        "fleet budget: 1 node"
    }


def test_the_budget_of_nodes_without_a_pool_is_that_of_the_default_pool() -> None:
    fleet = Fleet(3, replace(AT_ONCE, budget=Budget(fleet=1.0)))
    for number in range(2):
        fleet.report(number, finding("gpu-lost"))
    fleet.carry_out()
    assert fleet.reasons() == {"default pool budget has reached its limit: 1 of 1 node quarantined"}


def test_a_suspect_node_never_uses_the_reserve() -> None:
    fleet = Fleet(40, replace(AT_ONCE, budget=Budget(suspect=1.0)))
    for number in range(3):
        fleet.report(number, finding("gpu-ecc", health=Health.SUSPECT))
    fleet.carry_out()
    assert fleet.reasons() == {
        "fleet budget has reached its limit: 1 of 2 nodes marked, 1 kept for quarantine"
    }


def test_a_budget_is_a_whole_number_of_nodes_and_at_least_one() -> None:
    assert [group_limit(0.05, size).nodes for size in (1, 19, 39, 40, 59, 60)] == [1, 1, 1, 2, 2, 3]
    # 0.29 * 100 is a hair below 29.
    assert group_limit(0.29, 100).nodes == 29
    assert fleet_limits(Budget(), 7500) == FleetLimits(group_limit(0.05, 7500, 0.2), 300, 750, 1875)


def test_the_reserve_limits_suspect_nodes() -> None:
    assert group_limit(0.05, 100, 0.0).suspect == 5
    assert group_limit(0.05, 100, 1.0).suspect == 0
    assert group_limit(0.05, 10, 1.0).suspect == 0


@pytest.mark.parametrize(("used", "text"), [(12.125, "12.12"), (9_999.0, "9999"), (12_345.0, "12345")])
def test_a_large_budget_is_printed_without_an_exponent(used: float, text: str) -> None:
    refusal = BudgetRefusal("fleet budget", used, 100_000, "node")
    assert refusal.message() == f"fleet budget has reached its limit: {text} of 100000 nodes"
    view = BudgetView("fleet", used, 100_000.0)
    assert [column.cell(view) for column in BUDGET_TABLE.columns[1:3]] == [text, "100000"]
