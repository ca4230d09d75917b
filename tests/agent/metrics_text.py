"""The text of an agent's metrics."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from nodeguard.agent.metrics import AgentSnapshot, metric_families


class SnapshotCollector(Collector):
    def __init__(self, snapshot: AgentSnapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
        return metric_families(self._snapshot)


def metrics_text(snapshot: AgentSnapshot) -> str:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(SnapshotCollector(snapshot))
    return generate_latest(registry).decode()
