"""Tests for nodeguard.fleet.decide.domain_decision: which degraded domains a budget allows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest
from msgspec.structs import replace

from nodeguard.fleet.decide.domain_decision import (
    ActiveDomainMarks,
    DomainContext,
    DomainDecision,
    decide_domains,
)
from nodeguard.fleet.diagnosis.results import DegradedDomain
from nodeguard.model.incident import IncidentState
from nodeguard.model.instant import Instant
from nodeguard.model.mark import DegradedMark
from nodeguard.model.policy import Budget, Policy
from tests.policies import diagnosis_policy

NOW = Instant(1_700_000_000.0, 10_000.0, "aggregator")
BUDGET = Budget(degraded=0.05, first=0.05)


def nodes(numbers: Iterable[int]) -> frozenset[str]:
    return frozenset(f"uid-{number}" for number in numbers)


def degraded(domain: str) -> DegradedDomain:
    return DegradedDomain(domain, domain, ("link",), 0.0, 0.0, (), 8)


def context(*enforce: str, budget: Budget = BUDGET, restraint: str = "", now: Instant = NOW) -> DomainContext:
    policy = Policy(budget=budget, diagnosis=diagnosis_policy(enforce=enforce))
    return DomainContext(policy, 500, lambda at: now.wall - at, restraint)


def cover(
    members: Mapping[str, frozenset[str]],
    context: DomainContext,
    marked: Mapping[str, frozenset[str]] | None = None,
    now: Instant = NOW,
    already: Iterable[DomainDecision] = (),
) -> list[DomainDecision]:
    active = ActiveDomainMarks.of(
        (uid, DegradedMark(domain, ("link",), NOW.wall - 7_200.0))
        for domain, uids in (marked or {}).items()
        for uid in uids
    )
    every = {**members, **(marked or {})}
    return list(
        decide_domains([degraded(domain) for domain in members], active, every, context, now, already)
    )


OVERLAP = {"rack/r0": nodes(range(20))}


def test_a_domain_that_overlaps_a_marked_one_adds_only_its_other_nodes() -> None:
    [decision] = cover({"rack/r1": nodes(range(5, 30))}, context("rack"), OVERLAP)
    assert (decision.state, decision.reason) == (
        IncidentState.WITHHELD,
        "budget of degraded domains too small: 20 of 25 nodes used, and the domain adds 10",
    )


def test_of_domains_that_began_together_the_one_with_most_affected_nodes_is_marked_first() -> None:
    members = {f"rack/{name}": nodes(range(20 * at, 20 * at + 20)) for at, name in enumerate("abc")}
    affected = {"rack/a": 2, "rack/b": 9, "rack/c": 5}
    domains = [
        replace(degraded(name), voters=tuple(sorted(members[name])[:count]))
        for name, count in affected.items()
    ]
    for order in (domains, domains[::-1]):
        decisions = decide_domains(order, ActiveDomainMarks.of(()), members, context("rack"), NOW)
        assert [(decision.degraded.domain, decision.is_granted) for decision in decisions] == [
            ("rack/b", True),
            ("rack/c", False),
            ("rack/a", False),
        ]
    # An older one precedes them.
    domains[0] = replace(domains[0], began=-1.0)
    first, *_ = decide_domains(domains, ActiveDomainMarks.of(()), members, context("rack"), NOW)
    assert first.degraded.domain == "rack/a"


def test_a_domain_that_widens_beside_a_marked_one_is_not_a_first_domain() -> None:
    wider = replace(degraded("fabric/p1"), name="fabric/p1/l3")
    narrower = DegradedMark("fabric/p1/l3", ("link",), NOW.wall, "fabric/p1/l3")
    other = DegradedMark("fabric/p0", ("link",), NOW.wall)
    active = ActiveDomainMarks.of([("uid-0", narrower), *((uid, other) for uid in nodes(range(100, 120)))])
    [decision] = decide_domains([wider], active, {"fabric/p1": nodes(range(20))}, context("fabric"), NOW)
    assert (decision.state, decision.mark, decision.parts) == (IncidentState.WITHHELD, None, (narrower,))
    assert decision.reason.startswith("budget of degraded domains too small: 21 of 25 nodes used")


@pytest.mark.parametrize("restraint", ["", "too many agents are stale"])
def test_a_domain_has_the_marks_of_the_parts_that_it_replaced(restraint: str) -> None:
    leaves = "fabric/p1/l3", "fabric/p1/l4"
    parts = [DegradedMark(leaf, ("link",), NOW.wall, leaf) for leaf in leaves]
    other = DegradedMark("fabric/p1/l5", ("silent",), NOW.wall, "fabric/p1/l5")
    wider = replace(degraded("fabric/p1"), name="fabric/p1/l3", replaced=leaves)
    active = ActiveDomainMarks.of([("uid-0", parts[0]), ("uid-9", parts[1]), ("uid-19", other)])
    limits = context("fabric", restraint=restraint)
    [decision] = decide_domains([wider], active, {"fabric/p1": nodes(range(20))}, limits, NOW)
    assert decision.state == (IncidentState.WITHHELD if restraint else IncidentState.MARKED)
    assert (decision.mark is None, decision.parts) == (bool(restraint), tuple(parts))


def test_a_marked_domain_that_grows_adds_only_its_other_nodes() -> None:
    marked = {**OVERLAP, "rack/r1": nodes(range(18, 23))}
    active = {"rack/r1": nodes(range(18, 30))}
    decisions = decide_domains(
        [degraded("rack/r1")],
        ActiveDomainMarks.of(
            (uid, DegradedMark(name, (), NOW.wall)) for name, uids in marked.items() for uid in uids
        ),
        active,
        context("rack"),
        NOW,
    )
    assert [(decision.grows, decision.reason) for decision in decisions] == [
        (False, "budget of degraded domains too small: 23 of 25 nodes used, and the domain adds 7")
    ]


@pytest.mark.parametrize(
    ("size", "restraint", "reason"),
    [
        (5, "", ""),
        (10, "", "budget of degraded domains too small: 20 of 25 nodes used, and the domain adds 10"),
        (5, "maintenance window", "maintenance window"),
    ],
)
def test_a_dry_run_has_the_reason_that_would_withhold_the_mark(
    size: int, restraint: str, reason: str
) -> None:
    members = {"rack/r1": nodes(range(100, 100 + size))}
    for enforce, state in (
        ((), IncidentState.DRY_RUN),
        (("rack",), IncidentState.WITHHELD if reason else IncidentState.MARKED),
    ):
        [decision] = cover(members, context(*enforce, restraint=restraint), OVERLAP)
        assert (decision.state, decision.reason) == (state, reason)
        assert (decision.mark is not None) == (state == IncidentState.MARKED)


def test_a_dry_run_counts_the_domains_that_it_would_mark() -> None:
    members = {f"rack/r{at}": nodes(range(at * 5, at * 5 + 5)) for at in range(4)}
    decisions = cover(members, context(budget=replace(BUDGET, domains=3)))
    assert [decision.reason for decision in decisions] == [
        "", "", "", "budget of degraded domains would reach its limit: 3 of 3 new in 1 h",
    ]  # fmt: skip
    already = [decision for decision in decisions if decision.granted_at]
    later = Instant(NOW.wall + 3_601.0, NOW.mono + 3_601.0, "aggregator")
    limits = context(budget=replace(BUDGET, domains=3), now=later)
    decisions = cover(members, limits, now=later, already=already)
    assert {decision.degraded.domain: decision.granted_at for decision in decisions} == {
        **{decision.degraded.domain: NOW.wall for decision in already},
        "rack/r3": later.wall,
    }


def test_a_dry_run_uses_no_budget_of_marked_domains() -> None:
    members = {"leaf/l0": nodes(range(100, 120)), "rack/r1": nodes(range(10))}
    decisions = {incident.degraded.domain: incident for incident in cover(members, context("rack"))}
    assert decisions["rack/r1"].state == IncidentState.MARKED
    assert (decisions["leaf/l0"].state, decisions["leaf/l0"].reason) == (
        IncidentState.DRY_RUN,
        "budget of degraded domains too small: 10 of 25 nodes used, and the domain adds 20",
    )


def test_a_marked_domain_comes_first_though_it_was_restored_after_another() -> None:
    members = {"fabric/l0": nodes(range(20, 26)), "power/f0": nodes(range(20))}
    mark = DegradedMark("power/f0", ("link",), NOW.wall - 7_200.0)
    on_hold = "uid-19"
    active = ActiveDomainMarks.of((uid, mark) for uid in members["power/f0"] - {on_hold})
    both = [degraded(domain) for domain in members]
    decisions = decide_domains(both, active, members, context("fabric", "power"), NOW)
    assert [(made.degraded.domain, made.state) for made in decisions] == [
        ("power/f0", IncidentState.MARKED),
        ("fabric/l0", IncidentState.WITHHELD),
    ]
