from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from nodeguard.fleet.components.component_faults import ComponentFaultTracker
from nodeguard.fleet.components.repeat_offenders import DAY, ComponentFaults, FaultHistory
from nodeguard.fleet.diagnosis.results import SuppressedCheck
from nodeguard.fleet_api.node import repeat_offenders
from nodeguard.model.finding import Action, DataStatus, Health
from nodeguard.model.instant import Instant
from nodeguard.wire.report import Inventory, ReportedComponent, ReportedFinding
from tests.fleet.scene import Fleet, finding

START = 1_700_000_000.0


def history(parts: int = 10_000, days: float = 40.0) -> FaultHistory:
    """A fleet with components that were seen for some days before START."""
    made = FaultHistory()
    for number in range(parts):
        made.record_component(f"GPU-{number}", START - days * DAY, f"node-{number // 8}", f"gpu/{number % 8}")
    return made


def fails(made: FaultHistory, *days: float, part: str = "GPU-1") -> None:
    for age in days:
        made.record_fault(part, "node-0", "gpu/1", "gpu-lost", START - age * DAY)


def test_a_component_that_fails_again_and_again_is_a_repeat_offender() -> None:
    made = history()
    fails(made, 20.0, 9.0, 4.0)
    assert made.repeat_offenders(START) == ()  # Three faults, of which the first hardly counts any more.
    fails(made, 0.5)
    [offender] = made.repeat_offenders(START)
    assert (offender.part, offender.node, offender.target, offender.faults, offender.check) == (
        "GPU-1", "node-0", "gpu/1", 4, "gpu-lost",
    )  # fmt: skip
    assert offender.at == START - DAY / 2
    assert offender.since == START - 40 * DAY
    assert 0.0 < offender.expected < 0.001


def test_no_component_is_a_repeat_offender_if_all_fail() -> None:
    made = history(100)
    for number in range(100):
        fails(made, 3.0, 2.0, 1.0, part=f"GPU-{number}")
    assert made.repeat_offenders(START) == ()


def test_a_repeat_offender_fails_more_often_than_others_of_a_new_fleet() -> None:
    few = history(8)
    fails(few, 3.0, 2.0, 1.0)
    assert few.repeat_offenders(START) == ()


def test_faults_within_ten_minutes_are_one() -> None:
    made = history()
    for number in range(10):
        made.record_fault("GPU-1", "node-0", "gpu/1", "gpu-lost", START - 10_000.0 + 500.0 * number)
    assert made.repeat_offenders(START) == ()


def test_faults_of_long_ago_count_for_nothing() -> None:
    made = history()
    fails(made, 3.0, 2.0, 1.0)
    assert made.repeat_offenders(START)
    assert made.repeat_offenders(START + 30 * DAY) == ()
    made.forget(START + 400 * DAY)
    fails(made, -399.0)
    assert made.repeat_offenders(START + 400 * DAY) == ()


def test_a_repeat_offender_has_its_current_location() -> None:
    made = history()
    fails(made, 3.0, 2.0, 1.0)
    made.record_component("GPU-1", START, "node-77", "gpu/3")
    assert [(offender.node, offender.target) for offender in made.repeat_offenders(START)] == [
        ("node-77", "gpu/3")
    ]


def test_a_clock_that_was_set_back_gives_no_repeat_offenders() -> None:
    made = history()
    fails(made, 3.0, 2.0, 1.0)
    assert made.repeat_offenders(START - 50 * DAY) == ()


def test_components_are_bounded() -> None:
    made = history(1)
    fails(made, 3.0, 2.0, 1.0, part="GPU-0")
    for number in range(200_000):
        made.record_component(f"other-{number}", START)
    assert made.repeat_offenders(START) == ()


_AGES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 20 * 86_400)), max_size=30)


@settings(max_examples=40)
@given(_AGES, st.randoms(use_true_random=False))
def test_the_order_of_records_does_not_matter(faults: list[tuple[int, int]], chance: Random) -> None:
    mixed = list(faults)
    chance.shuffle(mixed)
    found = []
    for order in (faults, mixed):
        made = history(300)
        for part, age in order:
            fails(made, age / DAY, part=f"GPU-{part}")
        found.append(made.repeat_offenders(START))
    assert found[0] == found[1]


@settings(max_examples=40)
@given(_AGES, st.integers(0, 30))
def test_two_histories_can_be_merged(faults: list[tuple[int, int]], first: int) -> None:
    whole, first_half, second_half = history(300), history(300), history(300)
    for number, (part, age) in enumerate(faults):
        for made in (whole, first_half if number < first else second_half):
            fails(made, age / DAY, part=f"GPU-{part}")
    first_half.merge(second_half)
    assert first_half.repeat_offenders(START) == whole.repeat_offenders(START)


@given(st.lists(st.integers(0, 100 * 86_400), max_size=10), st.floats(0.0, 100 * DAY))
def test_faults_count_for_less_as_time_goes_by(ages: list[int], later: float) -> None:
    past = ComponentFaults("node-0", "gpu/1", START, "gpu-lost", START)
    past.add(tuple((START - age, START - age) for age in ages))
    many, weight = past.weight(START)
    then, left = past.weight(START + later)
    assert then <= many
    assert left <= weight <= many
    halved = past.weight(START + 30 * DAY)
    assert halved[1] * 2 == pytest.approx(weight)


def crowd(size: int = 1) -> Fleet:
    """Return a fleet with many components without faults."""
    fleet = Fleet(size)
    for number in range(20_000):
        fleet.planner.component_faults.history.record_component(f"other-{number}", fleet.wall - 40 * DAY)
    return fleet


def fail(fleet: Fleet, number: int, *findings: ReportedFinding, times: int = 3) -> None:
    """Report findings that end after an hour, each day."""
    for _ in range(times):
        fleet.report(number, *findings)
        fleet.after(3600.0)
        fleet.report(number)
        fleet.after(DAY - 3600.0)


def test_a_planner_has_repeat_offenders() -> None:
    fleet = crowd()
    fail(fleet, 0, finding(age=0.0), finding("gpu-ecc", age=0.0))
    [offender] = repeat_offenders(fleet.planner, fleet.now)
    assert (offender.component, offender.node, offender.faults) == ("GPU-1", "node-0", 3)


def test_a_lasting_fault_counts_once() -> None:
    fleet = crowd()
    for hour in range(100):
        fleet.report(0, finding(age=3600.0 * hour), finding("gpu-ecc" if hour % 2 else "gpu-hot", age=0.0))
        fleet.after(3600.0)
    assert repeat_offenders(fleet.planner, fleet.now) == ()


def test_findings_that_are_no_component_faults_do_not_count() -> None:
    fleet = crowd()
    fail(
        fleet,
        0,
        finding(age=0.0, component=""),
        finding(age=0.0, component="a", health=Health.WARNING),
        finding(age=0.0, component="b", action=Action.RESTART_WORKLOAD),
        finding(age=0.0, component="c", data_status=DataStatus.STALE),
    )
    assert repeat_offenders(fleet.planner, fleet.now) == ()


def test_a_slot_label_is_no_component() -> None:
    fleet = crowd()
    fail(fleet, 0, finding("memory-uncorrected", "dimm/mc0/dimm1", age=0.0, component="CPU_SrcID#0_DIMM#1"))
    fail(fleet, 0, finding("nvlink-down", "gpu/0000:3b:00/nvlink/3", age=0.0))
    assert [offender.component for offender in repeat_offenders(fleet.planner, fleet.now)] == ["GPU-1"]


def test_a_fault_of_many_components_of_a_node_counts_for_none() -> None:
    fleet = crowd(2)
    parts = [
        finding("gpu-lost", f"gpu/0000:{bus}:00", age=0.0, component=f"GPU-{bus}") for bus in range(10, 14)
    ]
    fail(fleet, 0, *parts)
    assert repeat_offenders(fleet.planner, fleet.now) == ()
    fail(fleet, 1, *parts[:2])  # The ends of one link fail together.
    assert [offender.component for offender in repeat_offenders(fleet.planner, fleet.now)] == [
        "GPU-10",
        "GPU-11",
    ]


def test_a_fault_that_a_domain_explains_is_no_fault_of_a_component() -> None:
    fleet = crowd()
    parts = fleet.planner.component_faults = ComponentFaultTracker(
        lambda uid, *_: "rack-r0" if uid == "uid-0" else ""
    )
    for number in range(20_000):
        parts.history.record_component(f"other-{number}", fleet.wall - 40 * DAY)
    fleet.add(1)
    fail(fleet, 0, finding(age=0.0))
    fail(fleet, 1, finding(age=0.0, component="GPU-2"))
    assert [offender.component for offender in repeat_offenders(fleet.planner, fleet.now)] == ["GPU-2"]


def test_a_suppressed_check_makes_no_repeat_offenders() -> None:
    fleet = crowd()
    for _ in range(3):
        suppressed = SuppressedCheck("gpu-lost", fleet.mono, fleet.mono, (), 0, 0.0)
        fleet.planner.diagnosis.open(suppressed)
        fail(fleet, 0, finding(age=0.0), times=1)
    assert repeat_offenders(fleet.planner, fleet.now) == ()


def test_the_location_of_a_component_is_from_inventories() -> None:
    fleet = crowd(2)
    fail(fleet, 0, finding(age=0.0))
    report = fleet.reports["uid-1"]
    inventory = Inventory(components={"gpu/0000:9d:00": ReportedComponent("GPU-1")})
    moved = type(report)(
        version=report.version, node=report.node, boot_id="b", sequence=2, health=Health.OK,
        inventory=inventory,
    )  # fmt: skip
    fleet.planner.record_report("uid-1", moved, fleet.now)
    assert [offender.target for offender in repeat_offenders(fleet.planner, fleet.now, "node-1")] == [
        "gpu/0000:9d:00"
    ]
    assert repeat_offenders(fleet.planner, fleet.now, "node-0") == ()


def test_a_deleted_node_has_no_faults() -> None:
    parts = ComponentFaultTracker(lambda *_: "")
    parts.remove_node("unknown")
    parts.tick(Instant(START, 1.0, ""))
    assert parts.repeat_offenders(Instant(START, 1.0, "")) == ()


JUMPS = (-DAY, -3_600.0, 3_600.0, DAY)


@pytest.mark.parametrize("seconds", JUMPS)
def test_a_jump_of_the_clock_neither_adds_nor_forgets_a_fault(seconds: float) -> None:
    fleet = crowd()
    for _ in range(3):
        fail(fleet, 0, finding(age=0.0), times=1)
        fleet.wall += seconds
        fleet.after(1.0)
    assert [offender.faults for offender in repeat_offenders(fleet.planner, fleet.now)] == [3]


@pytest.mark.parametrize("seconds", JUMPS)
def test_a_jump_of_the_clock_separates_no_faults_of_one_event(seconds: float) -> None:
    fleet = crowd()
    parts = [
        finding("gpu-lost", f"gpu/0000:{bus}:00", age=0.0, component=f"GPU-{bus}") for bus in range(10, 14)
    ]
    for _ in range(3):
        fleet.report(0, *parts[:2])
        fleet.after(30.0)
        fleet.wall += seconds
        fleet.after(1.0)
        fleet.report(0, *(replace(part, age=31.0) for part in parts[:2]), *parts[2:])
        fleet.after(3600.0)
        fleet.report(0)
        fleet.after(DAY)
    assert repeat_offenders(fleet.planner, fleet.now) == ()


def test_an_offender_of_a_new_fleet_stays_one_when_the_clock_is_set_back() -> None:
    fleet = Fleet(400)
    for number in range(400):
        inventory = Inventory(
            components={
                f"gpu/0000:{bus}:00": ReportedComponent(f"GPU-{number}-{bus}") for bus in range(10, 18)
            }
        )
        fleet.report(number, inventory=inventory)
    fail(fleet, 0, finding(age=0.0, component="GPU-0-10"))
    offenders = [offender.component for offender in repeat_offenders(fleet.planner, fleet.now)]
    assert offenders == ["GPU-0-10"]
    fleet.wall -= 4 * DAY
    fleet.after(1.0)
    assert [offender.component for offender in repeat_offenders(fleet.planner, fleet.now)] == offenders
