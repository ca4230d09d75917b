"""Plans with a limit of new marks: the first marks are issued early, and all marks are those of one plan."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from nodeguard.model.finding import Health
from nodeguard.model.incident import IncidentState
from nodeguard.model.policy import Budget, CheckLimit, Mode, ModeRule, Pool, TopologyLabels
from tests.fleet import leaves
from tests.fleet.scene import AT_ONCE, CHECKS, Fleet, finding

SUSPECT = finding("gpu-ecc", health=Health.SUSPECT)


def marks_in_parts(fleet: Fleet, limit: int) -> list[int]:
    """Issue and write plans with a limit until no mark is deferred, and observe the last ones. Returns the numbers of
    writes.
    """
    sizes = []
    for _ in range(100):
        plan = fleet.issue(limit)
        fleet.write(plan)
        sizes.append(len(plan.nodes))
        if not plan.deferred:
            fleet.carry_out()
            return sizes
    raise AssertionError(f"marks are deferred without end: {sizes}")


def incidents(fleet: Fleet) -> dict[str, tuple[IncidentState, str]]:
    """Return the state and the reason of each incident, by name."""
    return {incident.name: (incident.state, incident.detail) for incident in fleet.planner.all_incidents()}


def test_a_plan_sets_so_many_new_marks_the_most_severe_first() -> None:
    fleet = Fleet(8)
    for number in range(3):
        fleet.report(number, SUSPECT)
    for number in range(3, 7):
        fleet.report(number, finding(age=float(number)))
    plan = fleet.planner.plan(fleet.now, 3)
    assert [node.uid for node in plan.nodes] == ["uid-6", "uid-5", "uid-4"]
    assert plan.deferred == 4
    assert fleet.planner.plan(fleet.now, 3).nodes == plan.nodes, "the same plan until it is issued"
    assert marks_in_parts(fleet, 3) == [3, 3, 1]
    assert fleet.marked() == list(range(7))
    assert len(fleet.planner.all_incidents()) == 7
    assert {state for state, _ in incidents(fleet).values()} == {IncidentState.MARKED}


def test_a_deferred_mark_is_decided_and_its_incident_follows() -> None:
    fleet = Fleet(3)
    fleet.report(0, finding(age=2.0))
    fleet.report(1, finding(age=1.0))
    first = fleet.issue(1)
    [decision] = fleet.planner.tracker.decisions["uid-1"]
    assert decision.is_granted
    fleet.write(first)
    second = fleet.issue(1)
    assert [incident.node for incident in second.incidents] == ["node-0"]
    assert second.deferred == 0
    fleet.write(second)
    third = fleet.planner.plan(fleet.now, 1)
    assert [incident.node for incident in third.incidents] == ["node-1"]
    assert [event.node for event in third.events] == ["node-1"]


def test_a_later_and_more_severe_request_precedes_a_deferred_one() -> None:
    fleet = Fleet(20, replace(AT_ONCE, budget=replace(AT_ONCE.budget, fleet=0.1)))
    fleet.report(0, finding())
    fleet.report(1, SUSPECT)
    plan = fleet.issue(1)
    assert plan.deferred == 1
    fleet.report(2, finding())
    marks_in_parts(fleet, 1)
    assert {node.uid for node in plan.nodes} == {"uid-0"}
    assert (fleet.taints(1), len(fleet.taints(2))) == ([], 1)


def test_nodes_that_cannot_be_written_keep_no_other_node_from_its_mark() -> None:
    fleet = Fleet(20)
    for number in range(12):
        fleet.report(number, finding(age=100.0 - number))
    unwritable = set(range(4))
    attempts = dict.fromkeys(unwritable, 0)
    for _ in range(8):
        plan = fleet.issue(3)
        for node in plan.nodes:
            number = int(node.uid.removeprefix("uid-"))
            if number in unwritable:
                attempts[number] += 1
                fleet.planner.record_failed(node.uid)
            else:
                fleet.planner.record_written(node.uid, node.record)
                fleet.mark(node)
        fleet.after(1.0)
    assert fleet.marked() == list(range(4, 12))
    assert min(attempts.values()) >= 3, "they take turns"
    unwritable.clear()
    marks_in_parts(fleet, 3)
    assert fleet.marked() == list(range(12))


def test_a_fault_in_shared_hardware_is_diagnosed_while_its_reports_arrive_in_parts() -> None:
    made = leaves.fleet()
    for number in range(leaves.LEAF):
        leaves.fails(made, [number])
        marks_in_parts(made, 3)
    for _ in range(30):
        made.after(5.0)
        marks_in_parts(made, 3)
    assert made.planner.domain_marks.decisions.keys() == {leaves.FIRST}
    assert [made.taints(number) for number in range(leaves.LEAF)] == [
        ["nodeguard.dev/domain-degraded=fabric"]
    ] * leaves.LEAF


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(CHECKS), st.sampled_from([Health.FATAL, Health.SUSPECT]), st.integers(0, 9)
        ),
        min_size=1,
        max_size=40,
    ),
    st.integers(1, 12),
    st.builds(
        Budget,
        fleet=st.sampled_from([0.05, 0.3, 1.0]),
        reserve=st.sampled_from([0.0, 0.2]),
        pool=st.sampled_from([0.1, 0.5, 1.0]),
        domain=st.sampled_from([0.25, 0.5, 1.0]),
        suspect=st.sampled_from([0.05, 0.5]),
        check=st.sampled_from([CheckLimit(3, 600.0, 6), CheckLimit(100, 600.0, 100)]),
    ),
    st.booleans(),
)
def test_the_parts_of_a_plan_set_the_marks_of_the_whole_plan(
    faults: list[tuple[str, Health, int]], limit: int, budget: Budget, observes_one: bool
) -> None:
    policy = replace(
        AT_ONCE,
        budget=budget,
        modes=(ModeRule(Mode.OBSERVE, checks=("gpu-hot",)),) if observes_one else (),
        pools=(Pool("a", {"pool": "a"}), Pool("b", {"pool": "b"}, 0.5)),
        topologies=(TopologyLabels("rack", ("rack",)),),
    )
    fleets = [Fleet(48, policy) for _ in range(2)]
    for fleet in fleets:
        for number, (check, health, age) in enumerate(faults):
            # Some nodes have two faults.
            fleet.report(number % 32, finding(check, health=health, age=float(age)))
    whole, parts = fleets
    whole.carry_out()
    marks_in_parts(parts, limit)
    assert {uid: node.taints for uid, node in parts.nodes.items()} == {
        uid: node.taints for uid, node in whole.nodes.items()
    }
    assert incidents(parts) == incidents(whole)
    assert parts.plan().nodes == ()
