from __future__ import annotations

from msgspec.structs import replace

from nodeguard.model.incident import IncidentState
from nodeguard.model.policy import GracePeriods
from tests.backtest.scene import START, FleetHistory, shown
from tests.fleet.leaves import ENFORCED, FIRST, LEAF, PORT, down
from tests.fleet.scene import in_order
from tests.policies import diagnosis_policy

POLICY = replace(ENFORCED, grace=GracePeriods(60.0, 60.0, 60.0))


def leaf_history(*, recovers: bool = True) -> FleetHistory:
    """Return a history in which the leaf with the first nodes is down from second 100, and to second 7300 if
    it recovers.
    """
    history = FleetHistory(0)
    for number in range(80):
        history.see(0.0, number, labels={"pod": f"p{number // 40}", "rack": f"r{number // LEAF}"})
        history.report(0.0, number)
    for number in range(LEAF):
        history.report(100.0 + number, number, down())
        if recovers:
            history.report(7300.0, number, passing=(in_order(), in_order(("port-down",), (PORT,))))
    return history


def test_a_degraded_domain_is_counted_with_its_nodes_and_its_incident() -> None:
    result = leaf_history().result(POLICY, until=20_000.0)
    assert shown(result.marks) == []
    [domain] = result.domains
    expected = (FIRST, IncidentState.MARKED, LEAF, LEAF)
    assert (domain.domain, domain.state, domain.size, domain.voters) == expected
    assert domain.incident.startswith("fabric-p0-r0-")
    assert domain.evidence.startswith("fabric/p0/r0: 8 of 8 nodes lost")
    assert (domain.nodes, result.domain_nodes, result.max_domain_nodes, result.nodes) == (8, 8, 8, 0)
    assert domain.end is not None
    assert 110.0 < domain.start - START < 130.0
    assert domain.end - START > 7300.0
    assert result.domain_seconds == domain.seconds == 8 * (domain.end - domain.start)


def test_marks_that_a_degraded_domain_covers_are_neither_withheld_nor_spared() -> None:
    result = leaf_history().result(POLICY, until=20_000.0)
    [check] = result.checks
    assert (check.check, check.covered, check.marked, check.withheld) == ("port-down", LEAF, 0, 0)
    assert (check.spared, check.missed) == (0, 0)


def test_a_domain_that_is_not_enforced_is_a_dry_run() -> None:
    policy = replace(POLICY, diagnosis=diagnosis_policy())
    result = leaf_history().result(policy, until=20_000.0)
    [domain] = result.domains
    assert (domain.state, domain.size, domain.nodes, domain.seconds) == (IncidentState.DRY_RUN, LEAF, 0, 0.0)
    assert result.domain_nodes == 0


def test_a_domain_that_the_budget_withholds_names_the_reason() -> None:
    policy = replace(POLICY, budget=replace(POLICY.budget, domains=0))
    [domain] = leaf_history().result(policy, until=20_000.0).domains
    assert (domain.state, domain.nodes) == (IncidentState.WITHHELD, 0)
    assert domain.reasons == ("budget of degraded domains has reached its limit: 0 of 0 new in 1 h",)


def test_domains_before_the_time_range_are_left_out() -> None:
    history = leaf_history()
    assert history.result(POLICY, since=15_000.0, until=20_000.0).domains == ()
    [domain] = history.result(POLICY, since=5000.0, until=20_000.0).domains
    assert domain.end is not None
    assert domain.seconds == 8 * (domain.end - START - 5000.0)


def test_a_deleted_node_loses_the_mark_of_its_domain() -> None:
    history = leaf_history(recovers=False)
    history.gone(1000.0, 3)
    [domain] = history.result(POLICY, until=5000.0).domains
    lasted = START + 5000.0 - domain.start
    assert (domain.nodes, domain.seconds) == (8, 8 * lasted - 4000.0)
