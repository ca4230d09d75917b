"""Prometheus metrics of nodeguard check, for the textfile collector of node_exporter."""

from __future__ import annotations

from nodeguard.cli import scope
from nodeguard.model.finding import Verdict
from nodeguard.model.instant import Instant
from nodeguard.pipeline.verdict_metrics import verdict_metrics
from nodeguard.wire.exposition import plain


def as_metrics(verdict: Verdict, instant: Instant) -> str:
    """Return a verdict in the text format of Prometheus."""
    evaluated = "Evaluated checks, counted for each target."
    families = [
        verdict_metrics(
            verdict.known_health, scope.verdict_data_status(verdict), verdict.findings, verdict.read_failures
        ),
        plain("nodeguard_checks_evaluated", evaluated, verdict.evaluated),
        plain("nodeguard_check_timestamp_seconds", "Time of the evaluation.", instant.wall),
    ]
    return "".join(families)
