"""Availability: sums, clipping, order, gaps, and too few faults for a figure."""

from __future__ import annotations

from math import isclose
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nodeguard.backtest.availability import AvailabilityReport, Grouping, availability
from nodeguard.backtest.fleet_record import Cause, FleetRecord, Gap, Outage, Presence, RecordedFault
from nodeguard.model.mark import Mark

DAY = 86_400.0
LOST = Cause("gpu-lost", "", "serial 1", "replace")
FLAP = Cause("port-flap", "rack/r1", "gpu-1: port mlx5_0", "reset")
PRESENT = Presence("gpu-1", 8, 0.0, None)
CAUSES = st.sampled_from([LOST, FLAP, Cause("gpu-hot"), Cause("", "rack/r1")])
TIMES = st.integers(0, 100).map(float)


@st.composite
def periods(draw: st.DrawFn) -> tuple[float, float | None]:
    began = draw(TIMES)
    return began, draw(st.none() | st.integers(int(began), 100).map(float))


FAULTS = st.builds(lambda cause, period: RecordedFault(cause, *period), CAUSES, periods())
NODES = st.sampled_from(["gpu-1", "gpu-2"])
OUTAGES = st.builds(
    lambda node, carrier, mark, cause, period: Outage(node, carrier, mark, cause, "t", *period),
    NODES, st.sampled_from(["", "", "a", "b"]), st.sampled_from(list(Mark)), CAUSES, periods(),
)  # fmt: skip
PRESENCES = st.builds(lambda node, period: Presence(node, 4, *period), NODES, periods())
GAPS = st.builds(lambda node, period: Gap(node, *period), st.sampled_from(["", "gpu-1"]), periods())


def tuples(kind: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(kind, max_size=5).map(tuple)


RECORDS = st.builds(
    FleetRecord,
    faults=tuples(FAULTS),
    outages=tuples(OUTAGES),
    presences=tuples(PRESENCES),
    gaps=tuples(GAPS),
    false_alarms=tuples(FAULTS),
)
ADDITIVE = ("faults", "repaired", "released", "gpu_hours_out", "gpu_hours_without_gangs", "false_alarms")


def sums(report: AvailabilityReport, names: tuple[str, ...] = ADDITIVE) -> list[float]:
    return [getattr(report.total, name) for name in names]


def are_close(left: list[float], right: list[float]) -> bool:
    return all(isclose(a, b, abs_tol=1e-9) for a, b in zip(left, right, strict=True))


@pytest.mark.parametrize("by", ["check", "domain", "part", "action"])
@given(record=RECORDS)
def test_the_groups_of_any_grouping_add_up_to_the_total(by: Grouping, record: FleetRecord) -> None:
    report = availability(record, 0.0, 100.0, by)
    names = (*ADDITIVE, "ongoing")
    added = [float(sum(getattr(group.figures, name) for group in report.groups)) for name in names]
    assert are_close(added, sums(report, names))


@given(record=RECORDS, order=st.randoms(use_true_random=False))
def test_the_order_of_the_records_does_not_matter(record: FleetRecord, order: Random) -> None:
    names = ("faults", "outages", "presences", "gaps", "false_alarms")
    parts = {name: list(getattr(record, name)) for name in names}
    for part in parts.values():
        order.shuffle(part)
    shuffled = replace(record, **{name: tuple(part) for name, part in parts.items()})
    before, after = (availability(given_record, 10.0, 90.0, "check") for given_record in (record, shuffled))
    assert are_close(sums(before), sums(after))
    assert isclose(before.node_days, after.node_days)


@given(record=RECORDS, middle=TIMES)
def test_a_period_is_the_sum_of_its_parts(record: FleetRecord, middle: float) -> None:
    first, second, whole = (
        availability(record, *period, "check") for period in ((0.0, middle), (middle, 100.0), (0.0, 100.0))
    )
    parts = [left + right for left, right in zip(sums(first), sums(second), strict=True)]
    assert are_close(parts, sums(whole))
    assert isclose(first.node_days + second.node_days, whole.node_days, abs_tol=1e-9)
    assert isclose(first.gpu_hours + second.gpu_hours, whole.gpu_hours, abs_tol=1e-9)


@given(record=RECORDS)
def test_no_more_gpu_hours_are_out_than_there_are(record: FleetRecord) -> None:
    report = availability(record, 0.0, 100.0, "check")
    out = report.total.gpu_hours_out + report.total.gpu_hours_without_gangs
    assert 0.0 <= out <= report.gpu_hours + 1e-9


def test_a_fault_that_lasts_is_named_and_is_no_repair() -> None:
    record = FleetRecord(
        faults=(RecordedFault(LOST, 5.0, None), RecordedFault(LOST, 6.0, 36.0)), presences=(PRESENT,)
    )
    total = availability(record, 0.0, DAY, "check").total
    assert (total.faults, total.ongoing, total.repaired, total.repair_seconds_p50) == (2, 1, 1, 30.0)


def test_too_few_faults_and_repairs_give_no_figure() -> None:
    faults = tuple(RecordedFault(LOST, float(number), number + 60.0) for number in range(10))
    few, many = (
        availability(FleetRecord(faults=some, presences=(PRESENT,)), 0.0, 30 * DAY, "check").total
        for some in (faults[:2], faults)
    )
    assert (few.node_days_between_faults, few.node_days_low, few.repair_seconds_p90) == (None, None, None)
    unobserved = availability(FleetRecord(faults=faults), 0.0, 30 * DAY, "check").total
    assert (unobserved.node_days_between_faults, unobserved.node_days_low) == (None, None)
    assert (many.node_days_between_faults, many.repair_seconds_p90) == (3.0, 60.0)
    assert many.node_days_low is not None
    assert many.node_days_high is not None
    assert many.node_days_low < 3.0 < many.node_days_high


def test_false_alarms_have_a_rate_and_are_no_faults() -> None:
    false_alarms = tuple(RecordedFault(FLAP, at, at + 60.0) for at in (1.0, 2.0, 7.0 * DAY))
    record = FleetRecord(
        (RecordedFault(LOST, 5.0, None),),
        (),
        (PRESENT,),
        (Gap("", 5.0 * DAY, 10.0 * DAY),),
        false_alarms=false_alarms,
    )
    report = availability(record, 0.0, 20 * DAY, "check")
    assert (report.total.faults, report.total.false_alarms, report.total.repaired) == (1, 3, 0)
    # Two of them in 15 observed days. The exact interval of two events is 0.242 to 7.22.
    rates = [
        report.total.false_alarm_rate_low,
        report.total.false_alarm_rate,
        report.total.false_alarm_rate_high,
    ]
    assert rates == pytest.approx([242.2 / 15, 2_000 / 15, 7_224.7 / 15], rel=1e-4)
    by_check = {group.name: (group.figures.faults, group.figures.false_alarms) for group in report.groups}
    assert by_check == {"gpu-lost": (1, 0), "port-flap": (0, 3)}
    assert report.groups[0].figures.false_alarm_rate == 0.0
    nothing = availability(FleetRecord(), 0.0, DAY, "check").total
    assert (nothing.false_alarm_rate, nothing.false_alarm_rate_high) == (None, None)


def test_a_gap_counts_as_neither_healthy_nor_out() -> None:
    outage = Outage("gpu-1", "", Mark.QUARANTINE, LOST, "gpu/a", 0.0, DAY)
    gaps = (Gap("", 0.0, 0.25 * DAY), Gap("", 0.2 * DAY, 0.5 * DAY))
    report = availability(FleetRecord((), (outage,), (PRESENT,), gaps), 0.0, DAY, "check")
    assert (report.node_days, report.gpu_hours, report.total.gpu_hours_out) == (0.5, 96.0, 96.0)
    assert [gap.seconds for gap in report.gaps] == [0.25 * DAY, 0.3 * DAY]


def test_faults_that_began_in_a_gap_are_not_in_the_time_between_faults() -> None:
    faults = tuple(RecordedFault(LOST, at, None) for at in (1.0, 2.0, 3.0, 0.6 * DAY))
    record = FleetRecord(faults, (), (PRESENT,), (Gap("", 0.5 * DAY, DAY),))
    total = availability(record, 0.0, DAY, "check").total
    assert (total.faults, total.node_days_between_faults) == (4, 0.5 / 3)


def test_a_stale_agent_is_not_observed_and_its_marks_count() -> None:
    outage = Outage("gpu-1", "", Mark.QUARANTINE, LOST, "gpu/a", 0.0, None)
    record = FleetRecord((), (outage,), (PRESENT,), (Gap("gpu-1", 0.25 * DAY, None),))
    report = availability(record, 0.0, DAY, "check")
    assert (report.node_days, report.total.gpu_hours_out) == (0.25, 192.0)


def test_each_gpu_is_out_for_one_cause_at_a_time() -> None:
    device = Outage("gpu-1", "device", Mark.QUARANTINE, LOST, "gpu/a", 0.0, None)
    gang = Outage("gpu-1", "", Mark.SUSPECT, FLAP, "port", 0.0, None)
    node = replace(gang, mark=Mark.QUARANTINE, began=0.5 * DAY)
    report = availability(FleetRecord((), (device, gang, node), (PRESENT,)), 0.0, DAY, "check")
    hours = {
        group.name: (group.figures.gpu_hours_out, group.figures.gpu_hours_without_gangs)
        for group in report.groups
    }
    assert hours == {"gpu-lost": (12.0, 0.0), "port-flap": (96.0, 84.0)}
