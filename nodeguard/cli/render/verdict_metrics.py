"""The metrics of nodeguard check, for node_exporter's textfile collector."""

from __future__ import annotations

from nodeguard.cli import scope
from nodeguard.model.finding import Verdict
from nodeguard.model.instant import Instant
from nodeguard.pipeline.verdict_metrics import verdict_metrics
from nodeguard.wire.exposition import plain


def as_metrics(verdict: Verdict, instant: Instant) -> str:
    """A verdict of a moment in Prometheus' text format."""
    judged = "Checks that came to an answer, counted on each slot."
    families = [
        verdict_metrics(
            verdict.known_health, scope.verdict_data_status(verdict), verdict.findings, verdict.read_failures
        ),
        plain("nodeguard_checks_judged", judged, verdict.evaluated),
        plain("nodeguard_check_timestamp_seconds", "When the node was judged.", instant.wall),
    ]
    return "".join(families)
