"""Metrics of availability: faults, false alarms, and GPU-seconds out."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, Metric

from nodeguard.aggregator.fault_counter import FaultCounter, FaultLabels
from nodeguard.aggregator.metric_families import PREFIX, counter, counters
from nodeguard.model.instant import Instant
from nodeguard.pipeline.new_series import CounterSeries

# Of the time to repair, in seconds.
_HOUR, _DAY = 3_600.0, 86_400.0
REPAIR_BUCKETS = (60.0, 600.0, _HOUR, 4 * _HOUR, 12 * _HOUR, _DAY, 3 * _DAY, 7 * _DAY, 30 * _DAY)


def fault_families(counts: FaultCounter, series: CounterSeries, now: Instant) -> Iterator[Metric]:
    """Yield the metrics of availability, except the histogram of repairs."""
    faults = CounterMetricFamily(
        PREFIX + "faults",
        "Faults that began: suspect or fatal incidents that are no part of another one. part: kind of the "
        "target that failed; domain: of a degraded domain.",
        labels=FaultLabels._fields,
    )
    for labels, count in sorted(counts.faults.items()):
        faults.add_metric(labels, count)
    yield faults
    about = "Incidents that operators recorded as false alarms, by check."
    yield counters("false_alarms", about, "check", counts.false_alarms)
    out = CounterMetricFamily(
        PREFIX + "gpu_out_seconds",
        "GPU-seconds that marks kept from new work, for one cause at a time. work: all, or gangs for marks "
        "that keep only work on several nodes away.",
        labels=(*FaultLabels._fields, "work"),
    )
    seconds_out = series.values("gpu seconds out", counts.gpu_seconds_out, now)
    for (labels, is_gang_only), seconds in sorted(seconds_out.items()):
        out.add_metric((*labels, "gangs" if is_gang_only else "all"), seconds)
    yield out
    yield counter("gpu_seconds", "GPU-seconds of all nodes.", counts.gpu_seconds)
    about = "Node-seconds with an agent that reports; divided by faults, the time between faults."
    yield counter("observed_node_seconds", about, counts.node_seconds)
