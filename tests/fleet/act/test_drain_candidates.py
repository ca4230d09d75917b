"""Drain candidates: which faults and quarantines ask for a drain, and what identifies it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from nodeguard.fleet.act.drain_candidates import DrainCandidate
from nodeguard.fleet.act.drain_progress import drain_action, is_quarantined
from nodeguard.fleet.drains import is_unread
from nodeguard.model.finding import DataStatus, Health
from tests.fleet.act.drained_fleet import DRAINS, EVICT, GPU, OTHER, candidates, faulty, inventory, only
from tests.fleet.scene import Fleet, finding, in_order


def test_a_gpu_drains_only_once_its_quarantine_is_observed() -> None:
    fleet = Fleet(16, DRAINS)
    fleet.report(0, finding())
    plan = fleet.issue()
    assert candidates(fleet) == []
    fleet.write(plan)
    assert candidates(fleet) == [], "the plan has not observed it"
    fleet.issue()
    since = fleet.record().causes[0].since
    assert candidates(fleet) == [
        DrainCandidate("uid-0", "node-0", GPU, since, ("gpu-lost",), ("GPU-1",), blocker="")
    ]


@pytest.mark.parametrize(
    ("target", "targets", "resources"),
    [
        (GPU, (), {GPU}),
        (f"{GPU}/nvlink/3", (f"{GPU}/nvlink/3", f"{GPU}/nvlink/4"), {GPU}),
        (f"{GPU}/nvlink/3", (f"{GPU}/nvlink/3", f"{OTHER}/nvlink/3"), {GPU, OTHER}),
        ("gpu/index-3", (), {"gpu/index-3"}),
        ("nvswitch/0000:c1:00", (), {"node"}),
        ("port/mlx5_0/1", (), {"node"}),
        ("node", (GPU, "port/mlx5_0/1"), {"node"}),
    ],
)
def test_a_fault_of_gpus_is_about_these_gpus_and_any_other_about_the_node(
    target: str, targets: tuple[str, ...], resources: set[str]
) -> None:
    found = candidates(faulty(finding(target=target, targets=targets, component="")))
    assert {candidate.resource for candidate in found} == resources
    assert {candidate.is_whole_node for candidate in found} == {resources == {"node"}}


def test_the_id_of_a_gpu_is_of_its_finding_or_else_of_the_inventory() -> None:
    assert only(faulty(finding(component="GPU-7"))).gpu_ids == ("GPU-7",)
    assert only(faulty(finding(component=""), inventory=inventory())).gpu_ids == ("GPU-1",)
    link = finding(target=f"{GPU}/nvlink/3", component="link-3")
    assert only(faulty(link, inventory=inventory())).gpu_ids == ("GPU-1",)
    for component in ("", "1322621001234"):
        candidate = only(faulty(finding(component=component)))
        assert (candidate.gpu_ids, candidate.is_whole_node) == ((), False)


def test_a_replaced_gpu_ends_the_candidate() -> None:
    fleet = faulty(inventory=inventory())
    assert only(fleet).gpu_ids == ("GPU-1",)
    fleet.report(0, finding(), inventory=inventory(gpu_id="GPU-2"))
    fleet.carry_out()
    assert candidates(fleet) == [], "the fault is of the GPU that was there before"
    fleet.report(0, finding(component="GPU-2"), inventory=inventory(gpu_id="GPU-2"))
    fleet.carry_out()
    assert candidates(fleet) == [], "the quarantine is of the GPU that was there before"


def test_the_replaced_gpu_does_not_hide_another_fault_of_its_location() -> None:
    fleet = faulty(inventory=inventory())
    faults = finding(), finding("gpu-ecc", component="GPU-2")
    fleet.report(0, *faults, inventory=inventory(gpu_id="GPU-2"))
    fleet.carry_out()
    candidate = only(fleet)
    assert (candidate.checks, candidate.gpu_ids) == (("gpu-ecc",), ("GPU-2",))


@pytest.mark.parametrize(
    "change",
    [{"health": Health.SUSPECT}, {"health": Health.WARNING}, {"data_status": DataStatus.STALE}],
    ids=["suspect", "warning", "stale"],
)
def test_a_finding_that_is_not_fatal_now_drains_nothing(change: dict[str, Any]) -> None:
    fleet = faulty()
    assert candidates(fleet)
    fleet.report(0, replace(finding(), **change))
    fleet.carry_out()
    assert fleet.marked() == [0]
    assert candidates(fleet) == []


def test_a_late_report_drains_nothing_until_a_heartbeat_confirms_it() -> None:
    fleet = faulty()
    fleet.report(0, finding(), age=60.0)
    fleet.carry_out()
    assert candidates(fleet) == []
    fleet.after(5.0)
    fleet.carry_out()
    assert candidates(fleet)


def test_a_gpu_that_a_dra_driver_publishes_has_its_own_mark() -> None:
    fleet = Fleet(4, DRAINS)
    fleet.publish(0)
    fleet.report(0, finding(component="GPU-0"))
    fleet.carry_out()
    assert fleet.rules
    assert (only(fleet).is_on_device, only(fleet).blocker) == (True, "")
    assert not only(faulty()).is_on_device
    both = finding("gpu-ecc", targets=(GPU, OTHER), component="")
    fleet.report(0, finding(component="GPU-0"), both)
    fleet.carry_out()
    found = {candidate.resource: candidate.is_on_device for candidate in candidates(fleet)}
    assert found == {GPU: False, OTHER: False}, "the fault of both marks the Node"


def test_the_drain_of_a_gpu_with_a_mark_of_its_own_ends_with_this_mark() -> None:
    fleet = Fleet(4, DRAINS)
    fleet.publish(0)
    fleet.report(0, finding(component="GPU-0"), finding(target=OTHER, component="GPU-1"))
    fleet.carry_out()
    drains = [drain_action(candidate, (), fleet.wall) for candidate in candidates(fleet)]
    drains.append(replace(drains[0], request="quarantine of the node"))
    assert [found.resource for found in candidates(fleet)] == [GPU, OTHER]
    assert len(fleet.rules) == 2

    def quarantined() -> list[bool]:
        marks = fleet.planner.state.drain_marks("uid-0")
        return [is_quarantined(drain, marks) for drain in drains]

    assert quarantined() == [True, True, False], "the Node has no mark"
    fleet.report(0, finding(target=OTHER, component="GPU-1"), proven=(in_order(targets=(GPU,)),))
    for _ in range(40):
        fleet.after(3_600.0)
        fleet.carry_out()
    assert quarantined() == [False, True, False]
    hung = finding("driver-unresponsive", target="node", component="")
    fleet.report(0, finding(target=OTHER, component="GPU-1"), hung)
    fleet.carry_out()
    assert quarantined() == [True, True, True]


def test_the_identity_stays_whichever_causes_come_and_go() -> None:
    fleet = faulty()
    request = only(fleet).request
    fleet.after(100.0)
    for faults in (
        (finding(age=160.0),),
        (finding("gpu-ecc"), finding()),
        (finding(target=OTHER), finding()),
    ):
        fleet.report(0, *faults)
        fleet.carry_out()
        assert [item.request for item in candidates(fleet) if item.resource == GPU] == [request]
    before = candidates(fleet)
    fleet.restart()
    fleet.carry_out()
    assert candidates(fleet) == before
    fleet.report(0, finding("gpu-ecc"), finding(), proven=(in_order(targets=(OTHER,)),))
    fleet.carry_out()
    first = only(fleet)
    fleet.report(0, finding("gpu-ecc"), proven=(in_order(targets=(GPU, OTHER)),))
    for _ in range(40):
        fleet.after(3_600.0)
        fleet.carry_out()
    assert [cause.check for cause in fleet.record().causes] == ["gpu-ecc"], "the oldest cause is released"
    assert only(fleet).request == request == first.request
    assert only(fleet).since > first.since
    assert fleet.planner.state.drain_marks("uid-0")
    fleet.report(0, proven=(in_order(("gpu-lost", "gpu-ecc"), targets=(GPU, OTHER)),))
    for _ in range(40):
        fleet.after(3_600.0)
        fleet.carry_out()
    assert (fleet.marked(), candidates(fleet)) == ([], [])
    assert not fleet.planner.state.drain_marks("uid-0")


def test_a_fault_that_spreads_to_another_gpu_has_a_candidate_for_it() -> None:
    link, further = f"{GPU}/nvlink/3", f"{OTHER}/nvlink/3"
    fleet = faulty(finding(target=link, targets=(link,), component=""))
    before = only(fleet)
    fleet.report(0, finding(target=link, targets=(link, further), component=""))
    fleet.carry_out()
    assert [candidate.resource for candidate in candidates(fleet)] == [GPU, OTHER]
    assert candidates(fleet)[0] == before


FAULTS = st.lists(
    st.builds(
        finding,
        st.sampled_from(["gpu-lost", "gpu-ecc", "port-down"]),
        st.sampled_from([GPU, OTHER, f"{GPU}/nvlink/1", "port/mlx5_0/1", "node"]),
        health=st.sampled_from([Health.FATAL, Health.FATAL, Health.SUSPECT]),
        component=st.sampled_from(["", "GPU-1", "GPU-2"]),
    ),
    max_size=4,
    unique_by=lambda fault: (fault.check, fault.target),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(FAULTS, st.sampled_from([0.0, 30.0]), st.booleans()), min_size=1, max_size=6))
def test_a_candidate_has_an_observed_quarantine_and_a_fatal_finding(
    steps: list[tuple[list[Any], float, bool]],
) -> None:
    fleet = Fleet(4, DRAINS)
    for faults, age, is_restarted in steps:
        fleet.report(0, *faults, age=age)
        fleet.after(1.0)
        fleet.carry_out()
        if is_restarted:
            before = candidates(fleet)
            fleet.restart()
            fleet.after(1.0)
            fleet.carry_out()
            assert candidates(fleet) == before
        fatal = {fault.target.partition("/nvlink/")[0] for fault in faults if fault.health == Health.FATAL}
        found = candidates(fleet)
        drained = {candidate.resource for candidate in found}
        assert drained <= {target if target.startswith("gpu/") else "node" for target in fatal}
        assert len(drained) == len(found)
        reported = {fault.component for fault in faults}
        for candidate in found:
            assert any(cause.since == candidate.since for cause in fleet.record().causes)
            assert set(candidate.gpu_ids) <= reported
            assert not (candidate.is_whole_node and candidate.gpu_ids)


def unread(fleet: Fleet, candidate: DrainCandidate) -> bool:
    """Return whether the fault of an earlier candidate may go on."""
    assert candidates(fleet) == []
    return is_unread(fleet.planner, drain_action(candidate, (), fleet.wall))


def test_a_fault_that_is_not_read_now_may_go_on() -> None:
    fleet = faulty()
    candidate = only(fleet)
    fleet.report(0, finding(data_status=DataStatus.STALE))
    fleet.carry_out()
    assert unread(fleet, candidate)
    assert not unread(fleet, replace(candidate, resource=OTHER))
    fleet.report(0, age=600.0)
    fleet.carry_out()
    assert unread(fleet, candidate), "a late report"
    del fleet.reports["uid-0"]
    fleet.restart()
    assert unread(fleet, candidate), "no report since the start"


def test_a_fault_ends_with_its_report_its_quarantine_or_its_rule() -> None:
    fleet = faulty()
    candidate = only(fleet)
    fleet.report(0, finding(health=Health.SUSPECT))
    fleet.carry_out()
    assert not unread(fleet, candidate)
    fleet.report(0, finding(data_status=DataStatus.STALE))
    fleet.planner.set_policy(replace(DRAINS, drain=replace(EVICT, rules=())))
    assert not unread(fleet, candidate)
    fleet.planner.set_policy(DRAINS)
    assert unread(fleet, candidate)
    fleet.report(0)
    fleet.carry_out()
    fleet.report(0, finding(data_status=DataStatus.STALE))
    assert not unread(fleet, candidate), "its quarantine is released"
