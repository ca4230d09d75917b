"""Delay of the first counts of a series of a counter or histogram, between the events and the metrics."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

from nodeguard.model.instant import Instant

_K = TypeVar("_K", bound=Hashable)
_N = TypeVar("_N", int, float)

# Seconds for which a new series is exported without a count. `increase()` sees no rise in a series that
# begins at 1: without the delay, the first event of each series is in no figure. This is twice a scrape
# interval of a minute, the default of Prometheus.
ZERO_SECONDS = 120.0


class NewSeries:
    """Delays the counts of each series until Prometheus has scraped it as 0. Keys are those of the series."""

    def __init__(self) -> None:
        self._countable_at: dict[Hashable, float] = {}
        self._delayed: list[tuple[float, Callable[[], object]]] = []

    def create(self, key: Hashable, now: Instant) -> bool:
        """Note that a series is exported from now on. Returns whether it is new."""
        if key in self._countable_at:
            return False
        self._countable_at[key] = now.mono + ZERO_SECONDS
        return True

    def count(self, key: Hashable, add: Callable[[], object], now: Instant) -> None:
        """Count an event of a series that was created. add: adds the event, now or with `count_delayed`."""
        countable_at = self._countable_at[key]
        if now.mono >= countable_at:
            add()
        else:
            self._delayed.append((countable_at, add))

    def count_delayed(self, now: Instant) -> None:
        """Add the events of series that were exported for long enough."""
        delayed, self._delayed = self._delayed, []
        for countable_at, add in delayed:
            if now.mono >= countable_at:
                add()
            else:
                self._delayed.append((countable_at, add))


class CounterSeries:
    """Exports the series of counters as 0 until Prometheus has scraped them so.

    first_as_counted: whether the counts of the first call for a counter are exported at once. Only for counts
    of events before the start of the process, which Prometheus may have counted; make no call without them.
    """

    def __init__(self, *, first_as_counted: bool = False) -> None:
        self._first_as_counted = first_as_counted
        self._countable_at: dict[str, dict[Hashable, float]] = {}

    def values(self, counter: str, counts: Mapping[_K, _N], now: Instant) -> dict[_K, _N | int]:
        """Return the values to export. counter: its name; counts: by the labels of each series."""
        is_first = counter not in self._countable_at
        delay = 0.0 if is_first and self._first_as_counted else ZERO_SECONDS
        countable_at = self._countable_at.setdefault(counter, {})
        return {
            key: count if now.mono >= countable_at.setdefault(key, now.mono + delay) else 0
            for key, count in counts.items()
        }
