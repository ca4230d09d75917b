"""A new series of a counter is exported as 0 first, so that `increase()` sees its first event."""

from __future__ import annotations

from nodeguard.model.instant import Instant
from nodeguard.pipeline.new_series import ZERO_SECONDS, CounterSeries


def at(mono: float) -> Instant:
    return Instant(1e9 + mono, mono, "")


def test_a_new_series_is_0_until_it_has_been_scraped() -> None:
    series = CounterSeries()
    assert series.values("xids", {79: 1}, at(0.0)) == {79: 0}
    assert series.values("xids", {79: 2, 48: 1}, at(ZERO_SECONDS - 1.0)) == {79: 0, 48: 0}
    assert series.values("xids", {79: 3, 48: 1}, at(ZERO_SECONDS)) == {79: 3, 48: 0}


def test_counts_from_before_the_start_are_no_new_events() -> None:
    series = CounterSeries(first_as_counted=True)
    assert series.values("xids", {79: 3}, at(0.0)) == {79: 3}
    assert series.values("xids", {79: 4, 48: 1}, at(15.0)) == {79: 4, 48: 0}
    assert series.values("findings", {79: 1}, at(15.0)) == {79: 1}
