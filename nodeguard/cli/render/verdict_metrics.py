"""The metrics of nodeguard check, for node_exporter's textfile collector."""

from __future__ import annotations

from nodeguard.agent.metrics import finding_metrics, unreadable_metrics
from nodeguard.cli import scope
from nodeguard.model.finding import DataStatus, Health, Verdict
from nodeguard.model.instant import Instant
from nodeguard.wire.exposition import plain, states


def as_metrics(verdict: Verdict, instant: Instant) -> str:
    """A verdict of a moment in Prometheus' text format."""
    healthy = "Health of the node, 1 for the state that it is in; for none where nothing could be judged."
    known = "How well the node's health is known, 1 for the state that it is in."
    judged = "Checks that came to an answer, counted on each slot."
    families = [
        states("nodeguard_node_health", healthy, "health", Health, verdict.known_health),
        states(
            "nodeguard_node_knowledge", known, "knowledge", DataStatus, scope.verdict_data_status(verdict)
        ),
        finding_metrics(verdict.findings),
        unreadable_metrics(verdict.read_failures),
        plain("nodeguard_checks_judged", judged, verdict.evaluated),
        plain("nodeguard_check_timestamp_seconds", "When the node was judged.", instant.wall),
    ]
    return "".join(families)
