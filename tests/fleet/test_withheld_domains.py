"""Degraded domains over their budget: their nodes are withheld with them, not quarantined one by one."""

from __future__ import annotations

from msgspec.structs import replace

from nodeguard.model.incident import IncidentState
from nodeguard.model.policy import CheckLimit, GracePeriods, MarkWrites, Mode, ModeRule, Policy
from tests.fleet.leaves import ENFORCED, LEAF, domains, down, fails, faulty, fleet, wait
from tests.fleet.scene import WIDE, Fleet, finding
from tests.policies import diagnosis_policy

# The leaves of switches that get new firmware one after the other, in pods of their own.
LEAVES = (0, 6, 12)
THIRD = range(12 * LEAF, 13 * LEAF)
DEFAULT = replace(ENFORCED, budget=replace(WIDE, degraded=0.2, check=CheckLimit(5, 600.0, 15)))


def rollout(policy: Policy = DEFAULT) -> Fleet:
    """Three leaves fail within the hour; the budget allows two new degraded domains."""
    made = fleet(160, policy)
    for leaf in LEAVES:
        fails(made, range(leaf * LEAF, leaf * LEAF + LEAF))
        wait(made, 120.0)
    return made


def taints_of(made: Fleet, numbers: range) -> set[str]:
    return {taint for number in numbers for taint in made.taints(number)}


def test_the_nodes_of_a_withheld_domain_are_withheld() -> None:
    made = rollout()
    wait(made, 1_200.0)
    assert [incident.domain for incident in domains(made, IncidentState.WITHHELD)] == ["fabric/p2/r12"]
    assert taints_of(made, THIRD) == set()
    (decision,) = made.planner.tracker.decisions[f"uid-{THIRD[0]}"]
    assert (decision.state, decision.restraint) == (IncidentState.WITHHELD, "withheld-domain")
    assert decision.reason == (
        "part of fabric/p2/r12, which is degraded and withheld: "
        "budget of degraded domains has reached its limit: 2 of 2 new in 1 h"
    )


def test_a_withheld_domain_is_marked_once_its_budget_allows_it() -> None:
    made = rollout()
    wait(made, 3_600.0)
    assert domains(made, IncidentState.WITHHELD) == []
    assert taints_of(made, THIRD) == {"nodeguard.dev/domain-degraded=fabric"}


def test_the_nodes_of_a_domain_without_budget_of_nodes_are_marked_one_by_one() -> None:
    """Such a domain may never be marked."""
    made = rollout(replace(DEFAULT, budget=replace(DEFAULT.budget, degraded=0.1)))
    wait(made, 1_200.0)
    assert [incident.domain for incident in domains(made, IncidentState.WITHHELD)] == ["fabric/p2/r12"]
    assert taints_of(made, THIRD) == {"nodeguard.dev/quarantine=infiniband"}


def test_a_restart_marks_no_node_of_a_withheld_domain() -> None:
    made = rollout()
    made.restart()
    wait(made, 600.0)
    assert [incident.domain for incident in domains(made, IncidentState.WITHHELD)] == ["fabric/p2/r12"]
    assert taints_of(made, THIRD) == set()


def test_other_faults_in_a_withheld_domain_are_marked() -> None:
    made = rollout()
    made.report(THIRD[0], down(age=600.0), finding())
    wait(made, 30.0)
    assert made.taints(THIRD[0]) == ["nodeguard.dev/quarantine=gpu-bus"]
    assert taints_of(made, THIRD[1:]) == set()


def test_nodes_outside_of_a_withheld_domain_are_marked() -> None:
    made = rollout()
    other = THIRD[-1] + 1
    fails(made, [other])
    wait(made, 120.0)
    assert made.taints(other) == ["nodeguard.dev/quarantine=infiniband"]


def test_marks_from_before_the_domain_was_degraded_stay() -> None:
    made = faulty(
        10.0, size=160, policy=replace(DEFAULT, grace=GracePeriods(0.0, 0.0, 0.0)), numbers=[THIRD[0]]
    )
    for leaf in LEAVES:
        fails(made, range(leaf * LEAF, leaf * LEAF + LEAF))
        wait(made, 120.0)
    assert [incident.domain for incident in domains(made, IncidentState.WITHHELD)] == ["fabric/p2/r12"]
    assert made.taints(THIRD[0]) == ["nodeguard.dev/quarantine=infiniband"]


def test_nodes_of_a_topology_that_is_not_enforced_are_marked_one_by_one() -> None:
    made = rollout(replace(DEFAULT, diagnosis=diagnosis_policy()))
    wait(made, 60.0)
    assert {incident.state for incident in domains(made)} == {IncidentState.DRY_RUN}
    assert made.marked() != []


def test_without_taints_nodes_are_marked_one_by_one() -> None:
    """The mark of a domain would keep no work away."""
    made = rollout(replace(DEFAULT, budget=WIDE, marks=MarkWrites(taint=False, cordon=True)))
    wait(made, 1_200.0)
    assert any(made.nodes[f"uid-{number}"].unschedulable for number in THIRD)


def test_the_dry_run_of_a_check_has_the_reason() -> None:
    made = rollout(replace(DEFAULT, modes=(ModeRule(Mode.OBSERVE, checks=("port-down",)),)))
    (decision,) = made.planner.tracker.decisions[f"uid-{THIRD[0]}"]
    assert decision.state == IncidentState.DRY_RUN
    assert decision.reason.startswith("part of fabric/p2/r12, which is degraded and withheld: ")
