"""Metric families of the aggregator: a gauge or counter with one value, or one for each value of a label."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

PREFIX = "nodeguard_aggregator_"


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
