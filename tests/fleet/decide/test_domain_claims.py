"""Tests for nodeguard.fleet.decide.domain_claims: domain marks that no incident supports."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from nodeguard.fleet.state.node_marks import encode_record
from nodeguard.model.mark import STATE_ANNOTATION, DegradedMark, MarkRecord
from nodeguard.model.node import Node
from tests.fleet.leaves import FIRST, LEAF, fails, faulty, fleet, wait, well
from tests.fleet.scene import Fleet
from tests.fleet.test_restored_suppressions import POLICY, pass_time

DOMAIN = "nodeguard.dev/domain-degraded=fabric"
RECOVERY = 1_800.0


def claim(made: Fleet, number: int, *marks: DegradedMark) -> None:
    """Write a record of domains on a Node, as its kubelet can."""
    made.change(number, annotations={STATE_ANNOTATION: encode_record(MarkRecord(degraded=marks))})


def marked_without_incident() -> Fleet:
    """Return a fleet in which an aggregator was killed after the marks of a leaf, before its incident."""
    made = faulty(60.0, policy=POLICY)
    assert made.marked() == list(range(LEAF))
    return made


@pytest.mark.parametrize("restarts", [False, True])
def test_the_claim_of_a_node_marks_no_other_node(restarts: bool) -> None:
    made = fleet(80, POLICY)
    claim(made, 0, DegradedMark(FIRST, ("link",), made.wall - 60.0))
    if restarts:
        made.restart()
    pass_time(made, 600.0, 10.0)
    assert made.marked() == [0]
    assert not made.planner.diagnosis.degraded_domains
    pass_time(made, RECOVERY, 60.0)
    assert made.marked() == [], "its agent shows no fault"


def test_the_claim_of_a_node_without_an_agent_stays_on_it() -> None:
    made = fleet(80, POLICY)
    made.see(Node("forged", "uid-900", gpus=0))
    claim(made, 900, DegradedMark(FIRST, ("link",), made.wall + 1e9))
    pass_time(made, 2 * RECOVERY, 60.0)
    assert made.marked() == [900]
    [mark] = made.planner.releases.active_marks("uid-900")
    assert mark.wait.message.startswith(
        f"the node's agent to report no fault of {FIRST} for 30 min; no incident"
    )


def test_marks_without_an_incident_stay_and_are_of_the_domain_that_is_diagnosed_again() -> None:
    made = marked_without_incident()
    made.restart(incidents=())
    plan = made.carry_out()
    assert plan.nodes == ()
    assert made.marked() == list(range(LEAF))
    wait(made, 120.0)
    assert made.marked() == list(range(LEAF))
    assert set(made.planner.diagnosis.degraded_domains) == {FIRST}


def test_marks_without_an_incident_are_released_once_their_agents_prove_that_the_fault_is_over() -> None:
    made = marked_without_incident()
    well(made, range(LEAF - 1))
    del made.reports[f"uid-{LEAF - 1}"]
    made.restart(incidents=())
    pass_time(made, RECOVERY - 60.0, 60.0)
    assert made.marked() == list(range(LEAF))
    pass_time(made, 180.0, 60.0)
    assert made.marked() == [LEAF - 1], "without a report nothing is proven"


def test_a_fault_begins_the_proof_again() -> None:
    made = fleet(80, POLICY)
    claim(made, 0, DegradedMark(FIRST, ("link",), made.wall - 60.0))
    pass_time(made, RECOVERY - 120.0, 60.0)
    fails(made, [0])
    pass_time(made, 60.0, 60.0)
    well(made, [0])
    pass_time(made, RECOVERY - 120.0, 60.0)
    assert DOMAIN in made.taints(0)


def test_claims_use_no_budget_of_new_domains() -> None:
    made = fleet(80, replace(POLICY, budget=replace(POLICY.budget, domains=1)))
    claim(made, 79, *(DegradedMark(f"fabric/p1/r{leaf}", ("link",), made.wall) for leaf in range(50)))
    made.carry_out()
    fails(made)
    wait(made, 60.0)
    assert made.marked() == [*range(LEAF), 79]


def test_a_claim_does_not_mark_a_domain_that_a_budget_withholds() -> None:
    made = faulty(60.0, policy=replace(POLICY, budget=replace(POLICY.budget, domains=0)))
    assert DOMAIN not in made.taints(1)
    claim(made, 0, DegradedMark(FIRST, ("link",), made.wall - 7_200.0))
    wait(made, 60.0)
    made.restart()
    wait(made, 60.0)
    assert set(made.planner.diagnosis.degraded_domains) == {FIRST}
    assert [number for number in range(80) if DOMAIN in made.taints(number)] == [0]
