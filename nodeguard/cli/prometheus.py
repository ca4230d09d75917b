"""The metrics of nodeguard check, for node_exporter's textfile collector."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from nodeguard.cli import scope
from nodeguard.model.finding import Health, Knowledge, Verdict
from nodeguard.model.instant import Instant


def as_metrics(verdict: Verdict, instant: Instant) -> str:
    """A verdict of a moment in Prometheus' text format."""
    registry = CollectorRegistry()
    health = Gauge(
        "nodeguard_node_health",
        "Health of the node, 1 for the state that it is in; for none where nothing could be judged.",
        ["health"],
        registry=registry,
    )
    for state in Health:
        health.labels(state.value).set(state == scope.health(verdict))
    knowledge = Gauge(
        "nodeguard_node_knowledge",
        "How well the node's health is known, 1 for the state that it is in.",
        ["knowledge"],
        registry=registry,
    )
    for known in Knowledge:
        knowledge.labels(known.value).set(known == scope.knowledge(verdict))
    labels = ["check", "target", "health", "action", "knowledge"]
    findings = Gauge("nodeguard_finding", "Finding that is not ok.", labels, registry=registry)
    for one in verdict.findings:
        findings.labels(one.check, one.target, one.health.value, one.action.value, one.knowledge.value).set(1)
    unread = Gauge(
        "nodeguard_unread_slots", "Slots of which something could not be read.", ["source"], registry=registry
    )
    for missing in verdict.unread:
        unread.labels(missing.source).inc(len(missing.slots))
    Gauge(
        "nodeguard_checks_judged", "Checks that came to an answer, counted on each slot.", registry=registry
    ).set(verdict.judged)
    Gauge("nodeguard_check_timestamp_seconds", "When the node was judged.", registry=registry).set(
        instant.wall
    )
    return generate_latest(registry).decode()
