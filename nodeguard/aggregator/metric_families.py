"""Metric families of the aggregator: a gauge or counter with one value, or one for each value of a label."""

from __future__ import annotations

from collections.abc import Container, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

PREFIX = "nodeguard_aggregator_"

# Checks that are not in the catalogue and have counters of their own: those of a site.
_MAX_OTHER_CHECKS = 100


class CheckLabels:
    """Values of the label `check` of one counter: reports and the records on Nodes may have any name.

    A check of the catalogue always has its own value. Of the others, the first do; the rest is `other`.
    """

    def __init__(self) -> None:
        self._others: set[str] = set()

    def label(self, check: str, catalogue: Container[str]) -> str:
        """Return the value for a check; empty for no check."""
        if not check or check in catalogue or check in self._others:
            return check
        if len(self._others) >= _MAX_OTHER_CHECKS:
            return "other"
        self._others.add(check)
        return check


def gauge(name: str, about: str, value: float) -> Metric:
    """Return a gauge."""
    return GaugeMetricFamily(PREFIX + name, about, value=value)


def gauges(name: str, about: str, label: str, values: Mapping[str, float]) -> Metric:
    """Return a family of gauges."""
    family = GaugeMetricFamily(PREFIX + name, about, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def counter(name: str, about: str, value: float) -> Metric:
    """Return a counter."""
    return CounterMetricFamily(PREFIX + name, about, value=value)


def counters(name: str, about: str, label: str, counts: Mapping[str, int]) -> Metric:
    """Return a family of counters."""
    family = CounterMetricFamily(PREFIX + name, about, labels=[label])
    for key, count in sorted(counts.items()):
        family.add_metric([key], count)
    return family
