"""Tests for nodeguard.fleet.state.wall_clock."""

from __future__ import annotations

from nodeguard.fleet.state.wall_clock import WallClock
from nodeguard.model.instant import Instant


def at(mono: float, offset: float) -> Instant:
    return Instant(mono + offset, mono, "boot")


def test_a_time_means_one_time_without_a_jump() -> None:
    clock = WallClock()
    assert [clock.follow(at(mono, 1_000.0)) for mono in (10.0, 20.0)] == [0.0, 0.0]
    now = at(100.0, 1_000.0)
    assert clock.mono_times(1_050.0, now) == [50.0]
    assert clock.mono_times(900.0, now) == [-100.0]
    assert clock.mono_times(1_200.0, now) == []


def test_a_time_over_which_the_clock_was_set_back_means_two() -> None:
    clock = WallClock()
    clock.follow(at(10.0, 1_000.0))
    assert clock.follow(at(60.0, 960.0)) == -40.0
    now = at(200.0, 960.0)
    assert clock.mono_times(1_030.0, now) == [30.0, 70.0]
    assert clock.mono_times(1_000.0, now) == [0.0]
    assert clock.mono_times(1_090.0, now) == [130.0]


def test_a_time_before_the_clock_was_set_forward_means_one() -> None:
    clock = WallClock()
    clock.follow(at(10.0, 1_000.0))
    clock.follow(at(60.0, 1_040.0))
    now = at(200.0, 1_040.0)
    assert clock.mono_times(1_030.0, now) == [30.0]
    assert clock.mono_times(1_080.0, now) == []
    assert clock.mono_times(1_130.0, now) == [90.0]


def test_a_small_change_of_the_clock_is_no_jump() -> None:
    clock = WallClock()
    expected = [0.0, 0.0, 1.2000000000000455]
    assert [clock.follow(at(10.0, offset)) for offset in (1_000.0, 1_000.6, 1_001.2)] == expected
