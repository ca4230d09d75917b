"""Tests for nodeguard.sources.kmsg: counts, floods, and lines that were left out or lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeguard.model.target import NODE
from nodeguard.sources.kmsg import KmsgSource
from tests.sources.test_kmsg import PATTERNS, XID, Logging, line, one, pattern, read

EDAC = "EDAC MC0: {} CE memory read error on CPU_SrcID#0_Ha#0_Chan#0_DIMM#1 (channel:0 slot:1)"


IO_ERROR = "Buffer I/O error on dev {}, logical block 8912, async page read"


@pytest.mark.parametrize(("reported", "count"), [("1", 1), ("8821", 8821), ("0", 1)])
def test_the_number_that_a_line_reports_counts(reported: str, count: int) -> None:
    _, event = one(line(EDAC.format(reported)))
    assert (event.count, "count" in event.fields) == (count, False)


def test_reported_numbers_of_a_flood_are_added_up() -> None:
    [observation] = read(*(line(EDAC.format(3), at=float(at)) for at in range(1, 101)))
    assert sum(event.count for event in observation.events) == 300


def test_lines_that_the_kernel_left_out_count_for_the_next_event_of_the_same_function() -> None:
    suppressed = line("buffer_io_error: 12 callbacks suppressed")
    errors = (line(IO_ERROR.format(disk)) for disk in ("sdb1", "sdc1"))
    _, first, second = read(suppressed, line(XID), *errors)
    assert [event.count for event in (*first.events, *second.events)] == [13, 1]


def test_lines_left_out_by_another_function_count_for_nothing() -> None:
    _, event = one(line(IO_ERROR.format("sdb1")))
    [observation] = read(line("net_ratelimit: 12 callbacks suppressed"), line(IO_ERROR.format("sdb1")))
    assert observation.events == (event,)


def test_flood_is_limited_and_its_total_count_is_reported() -> None:
    flood = [line(XID.replace("79", "13"), at=float(at)) for at in range(1, 1001)]
    [observation] = read(*flood)
    assert len(observation.events) == 64
    assert sum(event.count for event in observation.events) == 1000
    assert (observation.events[0].at, observation.events[-1].at) == (1.0, 1000.0)


def test_flood_does_not_hide_another_code_or_another_gpu() -> None:
    flood = [line(XID.replace("79", "13"))] * 1000
    elsewhere = line(XID.replace("3b", "5e"))
    events = [
        (observation.target, event.fields["xid"])
        for observation in read(*flood, line(XID), elsewhere)
        for event in observation.events
    ]
    assert events.count(("gpu/0000:3b:00", 13)) == 64
    assert {*events} == {("gpu/0000:3b:00", 13), ("gpu/0000:3b:00", 79), ("gpu/0000:5e:00", 79)}


def test_a_storm_of_too_many_different_lines_is_reported() -> None:
    lost, *xids = read(*(line(XID.replace("79", str(code))) for code in range(100)))
    assert (lost.target, lost.status, lost.count) == (NODE, "lost", 36)
    assert (lost.events[0].signal, lost.events[0].fields) == ("kmsg.lost", {"records": 36})
    assert len(xids) == 64


def test_only_the_beginning_of_a_long_line_is_matched() -> None:
    observation = pattern("a", "end", text="a+ end")
    assert read(line("a" * 1020 + " end"), patterns=(observation,))
    assert not read(line("a" * 1021 + " end"), patterns=(observation,))


def test_status_of_a_machine_check_is_text() -> None:
    _, event = one(line("mce: [Hardware Error]: CPU 6: Machine Check: 0 Bank 5: 9000000000000108"))
    assert (event.fields["status"], event.fields["cpu"]) == ("9000000000000108", 6)


def test_a_long_line_is_cut() -> None:
    assert len(one(line(XID + "x" * 5000))[1].text) == 400


def test_number_of_lost_records_is_reported() -> None:
    lost, xid = read(line(XID), lost=17)
    assert (lost.target, lost.status, lost.count) == (NODE, "lost", 17)
    [event] = lost.events
    assert (event.signal, event.fields, event.at) == ("kmsg.lost", {"records": 17}, 1000.0)
    assert xid.status == "read"


def test_lines_are_reported_once() -> None:
    source, machine = KmsgSource(PATTERNS), Logging(line(XID))
    assert len(list(source.read(machine))) == 1
    assert list(source.read(machine)) == []


@given(st.lists(st.text() | st.sampled_from([observation.example for observation in PATTERNS])))
def test_any_text_is_parsed_without_an_error(texts: list[str]) -> None:
    source = KmsgSource(PATTERNS)
    for observation in source.read(Logging(*(line(text.replace("\n", r"\x0a")) for text in texts))):
        for event in observation.events:
            assert event.fields.keys() <= set(source.signals[event.signal].fields)
