"""Marks that are not set: in observe mode, of checks that are not enforced, and without a cluster."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from nodeguard.fleet_api.incident import list_incidents
from nodeguard.fleet_api.status import fleet_status
from nodeguard.model.finding import Health
from nodeguard.model.incident import IncidentState
from nodeguard.model.mark import HOLD_ANNOTATION
from nodeguard.model.policy import Budget, GracePeriods, MarkWrites, Mode, ModeRule, Policy
from tests.fleet.scene import AT_ONCE, WIDE, Fleet, finding
from tests.fleet.test_decisions import LEADER, decisions


def test_in_observe_mode_each_request_is_a_dry_run_with_what_would_withhold_it() -> None:
    fleet = Fleet(3, replace(AT_ONCE, mode=Mode.OBSERVE, budget=Budget()))
    for number in range(3):
        fleet.report(number, finding())
    plan = fleet.carry_out()
    assert {decision.state for decision in decisions(fleet)} == {IncidentState.DRY_RUN}
    full = "fleet budget would reach its limit: 1 of 1 node quarantined"
    assert sorted(decision.reason for decision in decisions(fleet)) == ["", full, full]
    assert sorted(incident.detail for incident in plan.incidents) == [
        f"would not quarantine node node-1: {full}",
        f"would not quarantine node node-2: {full}",
        "would quarantine node node-0",
    ]
    assert {event.reason for event in plan.events} == {"NodeguardDryRun"}
    status = fleet_status(fleet.planner, LEADER, fleet.now)
    assert (status.withheld.marks, status.would_mark.marks, status.policy.observe_only) == (0, 3, True)
    assert (status.dry_run.nodes, status.dry_run.within_budget, status.dry_run.over_budget) == (3, 1, 2)
    assert [limit.reason for limit in status.dry_run.budget_limits] == ["fleet budget: 1 node"]


def test_a_hold_or_a_pause_is_the_reason_of_a_dry_run_in_observe_mode() -> None:
    fleet = Fleet(3, replace(AT_ONCE, mode=Mode.OBSERVE))
    fleet.change(0, annotations={HOLD_ANNOTATION: "alice"})
    for number in range(2):
        fleet.report(number, finding())
    fleet.carry_out()
    assert sorted((decision.state, decision.reason) for decision in decisions(fleet)) == [
        (IncidentState.DRY_RUN, ""),
        (IncidentState.DRY_RUN, "the node is on hold: alice"),
    ]
    status = fleet_status(fleet.planner, LEADER, fleet.now).dry_run
    assert (status.within_budget, status.over_budget, status.otherwise_withheld) == (1, 0, 1)


def test_a_check_that_is_not_enforced_is_a_dry_run_beside_one_that_is() -> None:
    rules = (ModeRule(Mode.ENFORCE, checks=("gpu-lost",)),)
    fleet = Fleet(20, replace(AT_ONCE, mode=Mode.OBSERVE, modes=rules, budget=replace(WIDE, fleet=0.05)))
    fleet.report(0, finding())
    fleet.report(1, finding("port-down", "port/mlx5_0/1", health=Health.SUSPECT))
    fleet.report(2, finding("gpu-ecc"))
    fleet.carry_out()
    assert {decision.request.check: decision.state for decision in decisions(fleet)} == {
        "gpu-lost": IncidentState.MARKED,
        "port-down": IncidentState.DRY_RUN,
        "gpu-ecc": IncidentState.DRY_RUN,
    }
    status = fleet_status(fleet.planner, LEADER, fleet.now)
    expected = (False, ("gpu-lost",), ())
    assert (status.policy.observe_only, status.policy.enforced, status.policy.observed) == expected
    assert (status.dry_run.nodes, status.dry_run.suspect, status.withheld.marks) == (1, 1, 0)


def test_without_a_cluster_a_mark_that_is_granted_is_advised() -> None:
    fleet = Fleet(3)
    fleet.restart(IncidentState.ADVISED)
    fleet.report(0, finding())
    plan = fleet.carry_out()
    assert [incident.state for incident in plan.incidents] == [IncidentState.ADVISED]
    assert {decision.state for decision in decisions(fleet)} == {IncidentState.ADVISED}


def test_a_used_amount_that_changes_is_no_change_of_an_incident() -> None:
    """A GPU that is marked beside changes the used amount of the budget, not why the others are withheld."""
    fleet = Fleet(40, replace(AT_ONCE, budget=replace(WIDE, fleet=0.05)))
    fleet.publish(2)
    fleet.report(0, finding())
    fleet.carry_out()
    fleet.report(2, finding("gpu-ecc", "gpu/0000:3c:00", component="GPU-1"))
    fleet.carry_out()
    fleet.report(1, finding("port-down", "port/mlx5_0/1"))
    fleet.carry_out()
    [line] = list_incidents(fleet.planner, LEADER, fleet.now, {IncidentState.WITHHELD}).incidents
    assert line.summary == "fleet budget has reached its limit: 1.125 of 2 nodes marked"
    fleet.report(
        2, finding("gpu-ecc", "gpu/0000:3c:00"), finding("gpu-ecc", "gpu/0000:3d:00", component="GPU-2")
    )
    plan = fleet.carry_out()
    assert {incident.node for incident in plan.incidents} | {event.node for event in plan.events} <= {
        "node-2"
    }
    [line] = list_incidents(fleet.planner, LEADER, fleet.now, {IncidentState.WITHHELD}).incidents
    assert line.summary == "fleet budget has reached its limit: 1.25 of 2 nodes marked"


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.sampled_from(["gpu-lost", "gpu-ecc"]), st.floats(0.0, 200.0)),
        max_size=8,
        unique_by=lambda step: step[0],
    ),
    st.sampled_from([Mode.OBSERVE, Mode.ENFORCE]),
    st.sampled_from(
        [(), (ModeRule(Mode.ENFORCE, checks=("gpu-lost",)),), (ModeRule(Mode.OBSERVE, checks=("gpu-*",)),)]
    ),
    st.booleans(),
)
def test_only_what_is_enforced_is_granted_or_withheld(
    faults: list[tuple[int, str, float]], mode: Mode, modes: tuple[ModeRule, ...], paused: bool
) -> None:
    policy = Policy(mode=mode, modes=modes, grace=GracePeriods(60.0, 60.0, 60.0))
    fleet = Fleet(6, policy)
    fleet.planner.paused = "paused by alice" if paused else ""
    for number, check, age in faults:
        fleet.report(number, finding(check, age=age))
    fleet.carry_out()
    for decision in decisions(fleet):
        rules = [
            rule.mode for rule in modes if decision.request.check == "gpu-lost" or rule.checks == ("gpu-*",)
        ]
        enforced = (rules[-1] if rules else mode) == Mode.ENFORCE
        if fleet.wall - decision.request.since < 60.0:
            assert decision.state == IncidentState.PENDING
            assert decision.until == decision.request.since + 60.0
        elif enforced:
            assert decision.state in {IncidentState.MARKED, IncidentState.WITHHELD}
            assert (decision.state == IncidentState.WITHHELD) == bool(decision.reason)
        else:
            assert decision.state == IncidentState.DRY_RUN


def test_a_node_is_charged_until_its_uncordon_is_observed() -> None:
    budget = replace(WIDE, fleet=0.1)
    fleet = Fleet(10, replace(AT_ONCE, budget=budget, marks=MarkWrites(cordon=True)))
    fleet.report(0, finding())
    fleet.carry_out()
    assert fleet.nodes["uid-0"].unschedulable
    fleet.report(0)
    release = fleet.issue()
    assert [desired.cordon for desired in release.nodes] == [False]
    fleet.report(1, finding())
    # Either may be written first: until the release is seen, it spares no budget.
    assert [desired.uid for desired in fleet.plan().nodes] == []
    fleet.write(release)
    assert [desired.uid for desired in fleet.plan().nodes] == ["uid-1"]
