from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeguard.agent.agent import SourceSchedule, source_ages
from tests.agent.scene import Scripted


def agenda(*intervals: float, offset: float = 0.0) -> SourceSchedule:
    return SourceSchedule(
        [Scripted(f"every-{interval:g}", interval=interval) for interval in intervals], offset
    )


def names(one: SourceSchedule, now: float) -> list[str]:
    return [source.name for source in one.due(now)]


def test_all_are_read_at_once_and_then_each_at_its_interval() -> None:
    one = agenda(10, 30)
    assert names(one, 1003.0) == ["every-10", "every-30"]
    assert (one.next(), names(one, 1009.0)) == (1010.0, [])
    assert names(one, 1010.0) == ["every-10"]
    assert (one.next(), names(one, 1020.0)) == (1020.0, ["every-10", "every-30"])


def test_what_was_missed_is_not_made_up_for() -> None:
    one = agenda(10)
    one.due(0.0)
    assert [names(one, at) for at in (95.0, 96.0, 100.0)] == [["every-10"], [], ["every-10"]]


@given(offset=st.floats(0, 0.99), start=st.floats(0, 1e6))
def test_rounds_of_a_node_come_at_its_own_part_of_the_interval(offset: float, start: float) -> None:
    one = agenda(10, offset=offset)
    one.due(start)
    at = one.next()
    assert 0 < at - start <= 10.001
    assert names(one, at) == ["every-10"]
    assert one.next() - at == pytest.approx(10)


@given(offset=st.floats(0, 0.99), start=st.integers(0, 1_000_000))
def test_what_is_read_seldom_is_read_with_the_rest(offset: float, start: int) -> None:
    one = agenda(10, 30, offset=offset)
    one.due(start)
    rounds = [names(one, one.next()) for _ in range(9)]
    assert sum(len(together) == 2 for together in rounds) == 3
    assert all(together[0] == "every-10" for together in rounds)


def test_without_sources_nothing_is_ever_due() -> None:
    one = agenda()
    assert (one.due(0.0), one.next()) == ([], inf)


def test_ages() -> None:
    assert source_ages({"nvml": 90.0}, 100.0) == {"nvml": 10.0}
