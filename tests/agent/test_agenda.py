from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeguard.agent.agent import SourceSchedule, source_ages
from tests.agent.scene import Scripted


def new_schedule(*intervals: float, offset: float = 0.0) -> SourceSchedule:
    return SourceSchedule(
        [Scripted(f"every-{interval:g}", interval=interval) for interval in intervals], offset
    )


def names(schedule: SourceSchedule, now: float) -> list[str]:
    return [source.name for source in schedule.due(now)]


def test_sources_are_read_at_the_start_and_at_their_intervals() -> None:
    schedule = new_schedule(10, 30)
    assert names(schedule, 1003.0) == ["every-10", "every-30"]
    assert (schedule.next(), names(schedule, 1009.0)) == (1010.0, [])
    assert names(schedule, 1010.0) == ["every-10"]
    assert (schedule.next(), names(schedule, 1020.0)) == (1020.0, ["every-10", "every-30"])


def test_a_missed_reading_is_not_repeated() -> None:
    schedule = new_schedule(10)
    schedule.due(0.0)
    assert [names(schedule, at) for at in (95.0, 96.0, 100.0)] == [["every-10"], [], ["every-10"]]


@given(offset=st.floats(0, 0.99), start=st.floats(0, 1e6))
def test_the_offset_of_a_node_delays_its_rounds(offset: float, start: float) -> None:
    schedule = new_schedule(10, offset=offset)
    schedule.due(start)
    at = schedule.next()
    assert 0 < at - start <= 10.001
    assert names(schedule, at) == ["every-10"]
    assert schedule.next() - at == pytest.approx(10)


@given(offset=st.floats(0, 0.99), start=st.integers(0, 1_000_000))
def test_long_intervals_are_read_with_short_ones(offset: float, start: int) -> None:
    schedule = new_schedule(10, 30, offset=offset)
    schedule.due(start)
    rounds = [names(schedule, schedule.next()) for _ in range(9)]
    assert sum(len(together) == 2 for together in rounds) == 3
    assert all(together[0] == "every-10" for together in rounds)


def test_without_sources_nothing_is_due() -> None:
    schedule = new_schedule()
    assert (schedule.due(0.0), schedule.next()) == ([], inf)


def test_ages() -> None:
    assert source_ages({"nvml": 90.0}, 100.0) == {"nvml": 10.0}
