"""Metrics of drains: those that run, wait or would run, those that failed, and the pods that were evicted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from nodeguard.aggregator.actions.drains import DrainRunner
from nodeguard.aggregator.metric_families import PREFIX, counter, gauges
from nodeguard.fleet.act.drain_report import DrainState
from nodeguard.fleet.drains import failed_drains
from nodeguard.fleet.planner import Planner
from nodeguard.model.action import NodeAction

# Nodes with a failed drain that have a series each.
_MAX_FAILED = 100


class DrainCollector(Collector):
    """Reads the drains of an aggregator at each scrape. actions: returns the stored actions."""

    def __init__(
        self, runner: DrainRunner, planner: Planner, actions: Callable[[], Collection[NodeAction]]
    ) -> None:
        self._runner = runner
        self._planner = planner
        self._actions = actions

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of all drains."""
        states = Counter(report.state for report in self._runner.reports())
        yield gauges(
            "drains",
            "Drains by state: would-drain in a dry run, waits for what forbids it, announced to its pods, or "
            "running. An aggregator "
            "that does not lead counts only running ones.",
            "state",
            {state.value: states[state] for state in DrainState},
        )
        yield counter("drained_pods", "Pods that this aggregator has evicted.", self._runner.evicted)
        family = GaugeMetricFamily(
            PREFIX + "drain_failed",
            "1 for each node with a drain that failed, or of which the end is not known, while the node is "
            "quarantined. If the quarantine was released while a gang left, for a day. The first "
            f"{_MAX_FAILED} nodes.",
            labels=["node"],
        )
        failed = failed_drains(self._planner, self._actions())
        for node in sorted({action.node for action in failed})[:_MAX_FAILED]:
            family.add_metric([node], 1)
        yield family
