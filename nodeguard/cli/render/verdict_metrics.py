"""Prometheus metrics of nodeguard check, for the textfile collector of node_exporter."""

from __future__ import annotations

from nodeguard.agent.metrics import finding_metrics, unreadable_metrics
from nodeguard.cli import scope
from nodeguard.model.finding import DataStatus, Health, Verdict
from nodeguard.model.instant import Instant
from nodeguard.wire.exposition import plain, states


def as_metrics(verdict: Verdict, instant: Instant) -> str:
    """Return a verdict in the text format of Prometheus."""
    healthy = "Health of the node: 1 for the current state; 0 for all where no check could be evaluated."
    data_status = "Data status of the node: 1 for the current state."
    evaluated = "Evaluated checks, counted for each target."
    families = [
        states("nodeguard_node_health", healthy, "health", Health, verdict.known_health),
        states(
            "nodeguard_node_knowledge",
            data_status,
            "knowledge",
            DataStatus,
            scope.verdict_data_status(verdict),
        ),
        finding_metrics(verdict.findings),
        unreadable_metrics(verdict.read_failures),
        plain("nodeguard_checks_evaluated", evaluated, verdict.evaluated),
        plain("nodeguard_check_timestamp_seconds", "Time of the evaluation.", instant.wall),
    ]
    return "".join(families)
