"""Prometheus metrics of nodeguard check, for the textfile collector of node_exporter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from nodeguard.cli import scope
from nodeguard.model.finding import Verdict
from nodeguard.model.instant import Instant
from nodeguard.pipeline.verdict_metrics import verdict_metrics
from nodeguard.sources.nvml import GpuIdentity


def as_metrics(verdict: Verdict, instant: Instant, gpus: Mapping[str, GpuIdentity]) -> str:
    """Return a verdict in the text format of Prometheus. gpus: names of the GPUs in NVML, by target."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_VerdictCollector(verdict, instant, gpus))
    return generate_latest(registry).decode()


class _VerdictCollector(Collector):
    def __init__(self, verdict: Verdict, instant: Instant, gpus: Mapping[str, GpuIdentity]) -> None:
        self._verdict, self._instant, self._gpus = verdict, instant, gpus

    def collect(self) -> Iterator[Metric]:
        verdict = self._verdict
        data_status = scope.verdict_data_status(verdict)
        yield from verdict_metrics(
            verdict.known_health, data_status, verdict.findings, verdict.read_failures, self._gpus
        )
        about = "Evaluated checks, counted for each target."
        yield GaugeMetricFamily("nodeguard_checks_evaluated", about, value=verdict.evaluated)
        about = "Time of the evaluation."
        yield GaugeMetricFamily("nodeguard_check_timestamp_seconds", about, value=self._instant.wall)
