"""Tests for nodeguard.backtest.policy_difference."""

from __future__ import annotations

from msgspec.structs import replace

from nodeguard.backtest.policy_difference import PolicyDifference, compare_policies
from nodeguard.model.finding import Health
from nodeguard.model.policy import CheckLimit, GracePeriods, Policy
from tests.backtest.scene import FREE, FleetHistory, shown
from tests.backtest.test_domain_tracker import POLICY, leaf_history
from tests.fleet.leaves import FIRST, LEAF
from tests.fleet.scene import WIDE
from tests.policies import diagnosis_policy

SLOW = replace(FREE, grace=GracePeriods(300.0, 300.0))
ONE = replace(FREE, budget=replace(WIDE, check=CheckLimit(1, 600.0, 1)))

# Domains are marked, only diagnosed, or neither.
MARKED = POLICY
DRY_RUN = replace(POLICY, diagnosis=diagnosis_policy())
WITHOUT = replace(POLICY, diagnosis=diagnosis_policy(min_nodes=LEAF + 1))


def compared(first: Policy, second: Policy) -> PolicyDifference:
    return compare_policies(*leaf_history().run(first, second, until=20_000.0).results)


def test_two_policies_are_compared_mark_by_mark() -> None:
    history = FleetHistory()
    history.fault(100.0, 1)
    history.fault(100.0, 2)
    history.report(200.0, 2)
    history.fault(1000.0, 3, "gpu-ecc")
    tested = history.run(FREE, SLOW, until=5000.0)
    found = compare_policies(*tested.results)
    assert shown(found.first.marks) == [("node-2", 105, 801, "proven")]
    assert shown(found.second.marks) == []
    assert [(shown([item]), shown([other])) for item, other in found.marks] == [
        ([("node-1", 105, None, "open")], [("node-1", 400, None, "open")]),
        ([("node-3", 1005, None, "open")], [("node-3", 1300, None, "open")]),
    ]
    back = compare_policies(*reversed(tested.results))
    assert (shown(back.first.marks), shown(back.second.marks)) == ([], [("node-2", 105, 801, "proven")])


def test_a_policy_equals_itself() -> None:
    history = FleetHistory()
    history.fault(100.0, 1, health=Health.SUSPECT)
    found = compare_policies(*history.run(FREE, FREE, until=5000.0).results)
    assert (found.first.marks, found.second.marks, len(found.marks)) == ((), (), 1)


def test_findings_without_marks_in_both_policies_are_no_difference() -> None:
    history = FleetHistory()
    for number in range(3):
        history.fault(100.0, number)
    tested = history.run(FREE, ONE, until=5000.0)
    found = compare_policies(*tested.results)
    assert len(found.first.marks) == 2
    assert [result.max_marked for result in tested.results] == [3, 1]
    assert [round(result.seconds) for result in tested.results] == [3 * 4895, 4895]


def test_a_domain_that_only_one_policy_marks_is_a_difference() -> None:
    for other in (DRY_RUN, WITHOUT):
        found = compared(MARKED, other)
        assert [domain.domain for domain in found.first.domains] == [FIRST]
        assert (found.first.domain_nodes, found.second.domain_nodes) == (LEAF, 0)
        assert (found.second.domains, found.domains) == ((), 0)
        back = compared(other, MARKED)
        assert [domain.domain for domain in back.second.domains] == [FIRST]
        assert (back.first.domains, back.second.domain_nodes) == ((), LEAF)


def test_a_domain_that_only_one_policy_diagnoses_is_a_difference_without_marked_nodes() -> None:
    found = compared(DRY_RUN, WITHOUT)
    assert [domain.domain for domain in found.first.domains] == [FIRST]
    assert (found.first.domain_nodes, found.second.domains, found.domains) == (0, (), 0)


def test_a_domain_under_both_policies_is_no_difference() -> None:
    for policy in (MARKED, DRY_RUN):
        found = compared(policy, policy)
        assert (found.first.domains, found.second.domains, found.domains) == ((), (), 1)
        assert (found.first.domain_nodes, found.second.domain_nodes) == (0, 0)


def test_marks_that_the_mark_of_a_domain_replaces_under_the_other_policy_are_counted() -> None:
    found = compared(MARKED, WITHOUT)
    assert (found.first.marks, found.first.covered) == ((), 0)
    assert (len(found.second.marks), found.second.covered) == (LEAF, LEAF)
