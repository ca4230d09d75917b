"""A verdict as Prometheus metrics, which the agent serves and `nodeguard check` prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum

from prometheus_client.core import GaugeMetricFamily, Metric

from nodeguard.model.finding import DataStatus, Finding, Health, ReadFailure


def verdict_metrics(
    health: Health | None, data_status: DataStatus, findings: Iterable[Finding], unread: Iterable[ReadFailure]
) -> Iterator[Metric]:
    """Yield the metrics of a verdict. health: None if nothing could be evaluated."""
    yield _states(
        "nodeguard_node_health",
        "Health of the node: 1 for its state, 0 for all if nothing could be evaluated.",
        "health",
        Health,
        health,
    )
    yield _states(
        "nodeguard_node_data_status",
        "Status of the data about the node: 1 for its state.",
        "data_status",
        DataStatus,
        data_status,
    )
    labels = ["check", "target", "health", "action", "data_status"]
    family = GaugeMetricFamily("nodeguard_finding", "Finding that is not ok.", labels=labels)
    for finding in findings:
        values = (finding.check, finding.target, finding.health, finding.action, finding.data_status)
        family.add_metric(list(map(str, values)), 1)
    yield family
    targets = Counter[str]()
    for failure in unread:
        targets[failure.source] += len(failure.targets)
    about = "Targets of which something could not be read."
    yield gauges("nodeguard_unreadable_targets", about, "source", targets)


def gauges(name: str, about: str, label: str, values: Mapping[str, float]) -> Metric:
    """Return a family of gauges, one for each value of a label."""
    family = GaugeMetricFamily(name, about, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def _states(name: str, about: str, label: str, states: type[StrEnum], present: str | None) -> Metric:
    """Return a gauge for each state, 1 for the present one; None if there is none."""
    return gauges(name, about, label, {state.value: float(state == present) for state in states})
