"""Budgets hold in every history of faults, after each write, and a dry run grants what enforcement grants."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from nodeguard.fleet.budget_limits import fleet_limits, group_limit
from nodeguard.fleet.decide.admission import MarkDecision
from nodeguard.fleet.state.node_marks import decode_record, encode_record
from nodeguard.model.finding import Health
from nodeguard.model.incident import IncidentState
from nodeguard.model.mark import STATE_ANNOTATION, Mark
from nodeguard.model.policy import Budget, CheckLimit, Mode, Policy, Pool, SoakPeriod, TopologyLabels
from tests.fleet.cluster_planner import ClusterPlan
from tests.fleet.scene import AT_ONCE, Fleet, finding, in_order

pytestmark = pytest.mark.slow

CHECKS = CheckLimit(10**6, 600.0, 10**6)
POOLS = (Pool("a", {"pool": "a"}), Pool("b", {"pool": "b"}, 0.5))
SMALL = replace(AT_ONCE, budget=Budget(check=CHECKS))

ECC = finding("gpu-ecc", health=Health.SUSPECT)
FATAL_ECC = finding("gpu-ecc")
LOST = finding("gpu-lost")

# What a node reports; what it does not find is proven to be in order.
REPORTS = {
    "suspect": (ECC,),
    "fatal": (FATAL_ECC,),
    "suspect and fatal": (ECC, LOST),
    "other fatal": (LOST,),
    "recovered": (),
}


def report(fleet: Fleet, number: int, what: str) -> None:
    found = REPORTS[what]
    fine = tuple(check for check in ("gpu-ecc", "gpu-lost") if all(check != active.check for active in found))
    fleet.report(number, *found, proven=(in_order(fine),))


def policy_of(budget: Budget, mode: Mode = Mode.ENFORCE) -> Policy:
    return replace(
        AT_ONCE, mode=mode, budget=budget, pools=POOLS, topologies=(TopologyLabels("rack", ("rack",)),)
    )


budgets = st.builds(
    Budget,
    fleet=st.sampled_from([0.01, 0.05, 0.1, 0.3, 1.0]),
    reserve=st.sampled_from([0.0, 0.2, 0.5, 1.0]),
    pool=st.sampled_from([0.05, 0.1, 0.5, 1.0]),
    domain=st.sampled_from([0.1, 0.25, 0.5, 1.0]),
    suspect=st.sampled_from([0.01, 0.05, 0.3, 1.0]),
    check=st.just(CHECKS),
)
histories = st.tuples(
    st.integers(1, 60),
    st.lists(
        st.tuples(
            st.integers(0, 59), st.sampled_from(sorted(REPORTS)), st.sampled_from([False, False, True])
        ),
        max_size=25,
    ),
)


def groups(fleet: Fleet) -> dict[str, list[str]]:
    """Return the nodes of each group with a budget, by the name of the budget."""
    found: dict[str, list[str]] = defaultdict(list)
    for uid, node in fleet.nodes.items():
        for name in ("fleet", f"pool/{node.labels['pool']}", f"domain/rack/{node.labels['rack']}"):
            found[name].append(uid)
    return found


def carried(fleet: Fleet, mark: Mark) -> set[str]:
    """The nodes that carry the taint of a mark."""
    return {uid for uid, node in fleet.nodes.items() if any(taint.key == mark.key for taint in node.taints)}


def check_limits(fleet: Fleet) -> None:
    """Assert that no group is above its limit, by what Nodes carry."""
    budget, quarantined = fleet.policy.budget, carried(fleet, Mark.QUARANTINE)
    suspect = carried(fleet, Mark.SUSPECT)
    shares = {"pool/a": budget.pool, "pool/b": 0.5}
    for name, uids in groups(fleet).items():
        members = set(uids)
        limit = group_limit(shares.get(name, budget.domain), len(members))
        if name == "fleet":
            limit = fleet_limits(budget, len(members)).fleet
            assert len(suspect) <= fleet_limits(budget, len(members)).suspect
        assert len(members & quarantined) <= limit.nodes, name
        assert len(members & suspect) <= limit.suspect, name
        if not limit.separate:
            assert len(members & (quarantined | suspect)) <= limit.nodes, name


def check_printed(fleet: Fleet) -> None:
    """Assert that the planner reports what Nodes carry."""
    quarantined, suspect = carried(fleet, Mark.QUARANTINE), carried(fleet, Mark.SUSPECT)
    printed = {name: (used, beside) for name, used, _, beside in fleet.planner.state.budgets.rows()}
    for name, uids in groups(fleet).items():
        used, beside = printed.get(name, (0.0, 0.0))
        both = set(uids) & quarantined, set(uids) & suspect
        assert (used, beside) in {(len(both[0]), len(both[1])), (len(both[0] | both[1]), 0)}
    assert printed.get("suspect", (0.0, 0.0))[0] == len(suspect)


def settle(fleet: Fleet) -> None:
    """Plan and write until nothing changes; the limits hold after each write."""
    # A dry run changes without a write, too.
    for _ in range(3):
        plan = fleet.issue()
        while plan.nodes:
            for node in plan.nodes:
                fleet.write(ClusterPlan(nodes=(node,)))
                check_limits(fleet)
            plan = fleet.issue()


def granted(fleet: Fleet) -> set[tuple[str, str, Mark]]:
    """The requests that are granted, or that a dry run would grant."""
    outcomes = [decision for found in fleet.planner.tracker.decisions.values() for decision in found]
    return {
        (decision.request.node, decision.request.check, decision.request.mark)
        for decision in outcomes
        if _is_granted(decision)
    }


def _is_granted(decision: MarkDecision) -> bool:
    return decision.is_granted or (decision.state == IncidentState.DRY_RUN and not decision.reason)


@settings(deadline=None, max_examples=75)
@given(histories, budgets)
def test_no_group_is_ever_above_its_printed_limit(
    history: tuple[int, list[tuple[int, str, bool]]], budget: Budget
) -> None:
    size, events = history
    fleet, dry_run = Fleet(size, policy_of(budget)), Fleet(size, policy_of(budget, Mode.OBSERVE))
    for number, what, restarts in events:
        before = {mark: carried(fleet, mark) for mark in Mark}
        report(fleet, number % size, what)
        report(dry_run, number % size, what)
        if restarts:
            fleet.restart()
        settle(fleet)
        settle(dry_run)
        check_printed(fleet)
        assert granted(dry_run) == granted(fleet)
        # A mark ends only by proof, or because the same finding got worse.
        lost = before[Mark.QUARANTINE] - carried(fleet, Mark.QUARANTINE)
        assert lost <= {f"uid-{number % size}"}
        assert not lost or what in {"recovered", "suspect", "other fatal"}
        lost = before[Mark.SUSPECT] - carried(fleet, Mark.SUSPECT)
        assert lost <= {f"uid-{number % size}"} | carried(fleet, Mark.QUARANTINE)
        marks, budgets = fleet.marked(), list(fleet.planner.state.budgets.rows())
        fleet.restart()
        assert (fleet.marked(), list(fleet.planner.state.budgets.rows())) == (marks, budgets)


SOAK = SoakPeriod(600.0, 600.0, 0.0)
timed_histories = st.lists(
    st.tuples(
        st.integers(0, 19),
        st.sampled_from(["other fatal", "recovered"]),
        st.sampled_from([0.0, 300.0, 700.0]),
    ),
    max_size=15,
)


@settings(deadline=None, max_examples=100)
@given(st.integers(2, 20), timed_histories, budgets)
def test_a_dry_run_holds_the_capacity_of_its_marks_for_the_soak_period(
    size: int, history: list[tuple[int, str, float]], budget: Budget
) -> None:
    fleets = [
        Fleet(size, replace(policy_of(budget, mode), soak=SOAK)) for mode in (Mode.ENFORCE, Mode.OBSERVE)
    ]
    for number, what, seconds in history:
        for fleet in fleets:
            report(fleet, number % size, what)
            settle(fleet)
            fleet.after(seconds)
            settle(fleet)
        assert granted(fleets[0]) == granted(fleets[1])


@pytest.mark.parametrize("mode", Mode)
def test_the_next_node_waits_for_the_soak_period_of_the_first(mode: Mode) -> None:
    fleet = Fleet(10, replace(SMALL, mode=mode, soak=SOAK))
    for number, what, wanted in ((0, "other fatal", "node-0"), (0, "recovered", ""), (1, "other fatal", "")):
        report(fleet, number, what)
        settle(fleet)
        assert {node for node, _, _ in granted(fleet)} == ({wanted} if wanted else set())
        fleet.after(200.0)
    settle(fleet)
    fleet.after(300.0)
    settle(fleet)
    assert {node for node, _, _ in granted(fleet)} == {"node-1"}


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("size", [2, 3, 20])
def test_a_suspect_node_that_becomes_fatal_uses_the_quarantine_budget(size: int, mode: Mode) -> None:
    fleet = Fleet(size, replace(SMALL, mode=mode))
    for number, what in ((0, "suspect"), (0, "fatal"), (1, "other fatal")):
        report(fleet, number, what)
        fleet.carry_out()
    assert granted(fleet) == {("node-0", "gpu-ecc", Mark.QUARANTINE)}
    if mode == Mode.ENFORCE:
        assert fleet.marked() == [0]
        assert ("fleet", 1.0, 1.0, 0.0) in fleet.planner.state.budgets.rows()


@pytest.mark.parametrize("second", ["fatal", "suspect and fatal"])
def test_a_suspect_node_without_quarantine_budget_stays_suspect(second: str) -> None:
    fleet = Fleet(20, SMALL)
    for number, what in ((0, "suspect"), (1, "other fatal"), (0, second)):
        report(fleet, number, what)
        fleet.carry_out()
    assert fleet.taints(0) == ["nodeguard.dev/suspect=gpu-bus"]
    [reason] = [
        decision.reason
        for decision in fleet.planner.tracker.decisions["uid-0"]
        if decision.state == IncidentState.WITHHELD
    ]
    assert reason == "fleet budget has reached its limit: 1 of 1 node quarantined"
    report(fleet, 1, "recovered")
    fleet.carry_out()
    assert "nodeguard.dev/quarantine=gpu-bus" in fleet.taints(0)


@pytest.mark.parametrize("mode", Mode)
def test_a_dry_run_keeps_a_suspect_node_without_quarantine_budget_suspect(mode: Mode) -> None:
    fleet = Fleet(20, replace(SMALL, mode=mode))
    for number, what in ((5, "suspect"), (6, "other fatal"), (5, "fatal"), (0, "suspect"), (1, "fatal")):
        report(fleet, number, what)
        fleet.carry_out()
    assert granted(fleet) == {("node-6", "gpu-lost", Mark.QUARANTINE)}


def test_a_node_stays_suspect_after_its_fatal_fault_and_frees_its_quarantine_budget() -> None:
    fleet = Fleet(20, SMALL)
    for number, what in ((0, "suspect"), (0, "suspect and fatal"), (1, "suspect"), (0, "suspect")):
        report(fleet, number, what)
        fleet.carry_out()
    assert fleet.taints(0) == ["nodeguard.dev/suspect=gpu-bus"]
    assert fleet.taints(1) == []
    report(fleet, 2, "other fatal")
    fleet.carry_out()
    assert fleet.marked() == [0, 2]


def test_a_quarantined_node_uses_no_suspect_budget() -> None:
    fleet = Fleet(20, SMALL)
    for number, what in ((0, "suspect and fatal"), (1, "suspect")):
        report(fleet, number, what)
        fleet.carry_out()
    assert fleet.taints(0) == ["nodeguard.dev/quarantine=gpu-bus"]
    assert fleet.taints(1) == ["nodeguard.dev/suspect=gpu-bus"]
    report(fleet, 0, "suspect")
    fleet.carry_out()
    assert fleet.taints(0) == []
    assert [decision.state for decision in fleet.planner.tracker.decisions["uid-0"]] == [
        IncidentState.WITHHELD
    ]


def test_a_node_uses_no_reserve_as_suspect_after_its_fatal_fault() -> None:
    fleet = Fleet(40, SMALL)
    for number, what in ((0, "other fatal"), (1, "other fatal"), (0, "suspect")):
        report(fleet, number, what)
        fleet.carry_out()
    assert fleet.marked() == [1]
    [decision] = fleet.planner.tracker.decisions["uid-0"]
    assert decision.reason == "fleet budget has reached its limit: 1 of 2 nodes marked, 1 kept for quarantine"


def test_the_records_of_earlier_versions_count_by_their_causes() -> None:
    fleet = Fleet(20, SMALL)
    report(fleet, 0, "fatal")
    fleet.carry_out()
    record = decode_record(fleet.nodes["uid-0"].annotations[STATE_ANNOTATION])
    assert record is not None
    assert record.charge is not None
    # As an earlier version left a suspect node that turned fatal.
    old = replace(record, charge=replace(record.charge, mark=Mark.SUSPECT))
    fleet.change(0, annotations={STATE_ANNOTATION: encode_record(old)})
    fleet.restart()
    assert ("fleet", 1.0, 1.0, 0.0) in fleet.planner.state.budgets.rows()
    report(fleet, 1, "other fatal")
    fleet.carry_out()
    assert fleet.marked() == [0]
