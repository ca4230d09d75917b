"""Limits on the incidents of injected faults: apart from those of real ones."""

from __future__ import annotations

from nodeguard.fleet.incidents.limits import MAX_INJECTED_PER_NODE, MAX_PER_NODE
from nodeguard.model.finding import Health
from nodeguard.model.incident import IncidentState
from tests.fleet.scene import Fleet, finding
from tests.fleet.test_injection import ALLOWED, inject

GPUS = [f"gpu/0000:{bus:02x}:00" for bus in range(0x40, 0x48)]


def recorded(fleet: Fleet, *, injected: bool) -> int:
    return sum(incident.injected == injected for incident in fleet.planner.all_incidents())


def test_a_real_fault_is_recorded_however_many_injected_ones_there_are() -> None:
    fleet = Fleet(20, ALLOWED)
    tracker = fleet.planner.tracker
    tracker.recorded.max_total, tracker.recorded.max_injected = 3, 5
    for number in range(10):
        inject(fleet, "gpu-lost", number=number)
    fleet.carry_out()
    assert (recorded(fleet, injected=True), recorded(fleet, injected=False)) == (5, 0)
    fleet.report(15, finding("gpu-hot", health=Health.WARNING))
    fleet.report(16, finding("gpu-lost"))
    fleet.carry_out()
    assert (recorded(fleet, injected=True), recorded(fleet, injected=False)) == (5, 2)


def test_only_real_incidents_are_counted_as_omitted() -> None:
    fleet = Fleet(10, ALLOWED)
    fleet.planner.tracker.recorded.max_injected = 2
    for number in range(4):
        inject(fleet, "gpu-lost", number=number)
    fleet.carry_out()
    assert recorded(fleet, injected=True) == 2
    assert (fleet.planner.tracker.recorded.left_out, fleet.planner.tracker.recorded.left_out_total) == ({}, 0)


def test_an_injected_fault_beyond_the_limit_is_recorded_when_another_was_resolved_long_ago() -> None:
    fleet = Fleet(4, ALLOWED)
    fleet.planner.tracker.recorded.max_injected = 1
    inject(fleet, "gpu-lost", number=0)
    fleet.carry_out()
    inject(fleet, "gpu-lost", number=1)
    fleet.report(0)
    fleet.carry_out()
    assert "uid-1" not in fleet.planner.tracker.recorded.by_uid
    for _ in range(3):
        fleet.after(31.0)
        fleet.carry_out()
    assert [item.state for item in fleet.planner.tracker.recorded.by_uid["uid-1"].values()] == [
        IncidentState.MARKED
    ]


def test_the_injected_incidents_of_a_node_take_no_room_of_its_real_ones() -> None:
    fleet = Fleet(1, ALLOWED)
    real = [finding(target=f"fs:/{number}") for number in range(MAX_PER_NODE)]
    for rehearsal in range(6):
        targets = [gpu.replace("0000", f"{rehearsal:04x}") for gpu in GPUS]
        fleet.report(0, injected=tuple(finding(target=gpu, age=0.0) for gpu in targets))
        fleet.carry_out()
        fleet.report(0)
        fleet.carry_out()
    assert recorded(fleet, injected=True) == MAX_INJECTED_PER_NODE
    fleet.report(0, *real)
    fleet.carry_out()
    assert recorded(fleet, injected=False) == MAX_PER_NODE


def test_a_new_aggregator_counts_the_restored_incidents_apart() -> None:
    fleet = Fleet(4, ALLOWED)
    for number in range(3):
        inject(fleet, "gpu-lost", number=number)
    fleet.carry_out()
    fleet.restart(incidents=fleet.planner.all_incidents())
    fleet.planner.tracker.recorded.max_total = 1
    fleet.report(3, finding())
    fleet.carry_out()
    assert "uid-3" in fleet.planner.tracker.recorded.by_uid
