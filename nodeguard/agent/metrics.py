"""What the agent shows of the node's health, in Prometheus' text format. Telemetry is another exporter's."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from nodeguard import __version__
from nodeguard.model.finding import Finding, Health, Knowledge, Verdict

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# Findings shown one by one, worst first; the rest is counted: series cost memory in every Prometheus.
_MOST = 20


def as_metrics(
    verdict: Verdict,
    ages: Mapping[str, float],
    rounds: int,
    unheard: Mapping[str, float] | None = None,
    waiting: int = 0,
) -> str:
    """The metrics of an agent.

    verdict: the latest. ages: seconds since each source's latest round. rounds: how often it has judged.
    unheard: seconds since each receiver heard of this node, None where there are none. waiting: transitions
    that no receiver has heard.
    """
    registry = CollectorRegistry()
    _states(
        registry,
        "nodeguard_node_health",
        "Health of the node, 1 for its state.",
        "health",
        Health,
        verdict.health,
    )
    words = "How well the node's health is known, 1 for its state."
    _states(registry, "nodeguard_node_knowledge", words, "knowledge", Knowledge, verdict.knowledge)
    labels = ["check", "target", "health", "action", "knowledge"]
    findings = Gauge("nodeguard_finding", "Finding that is not ok.", labels, registry=registry)
    for one in verdict.findings[:_MOST]:
        findings.labels(*_labels(one)).set(1)
    _plain(
        registry,
        "nodeguard_findings_left_out",
        "Findings that are not shown one by one.",
        max(0, len(verdict.findings) - _MOST),
    )
    unread = Gauge(
        "nodeguard_unread_slots", "Slots of which something could not be read.", ["source"], registry=registry
    )
    for missing in verdict.unread:
        unread.labels(missing.source).inc(len(missing.slots))
    age = Gauge(
        "nodeguard_source_age_seconds", "Time since a source was read.", ["source"], registry=registry
    )
    for name, seconds in ages.items():
        age.labels(name).set(seconds)
    if unheard is not None:
        about = "Time since an aggregator acknowledged a message of this node."
        since = Gauge("nodeguard_acknowledged_age_seconds", about, ["receiver"], registry=registry)
        for name, seconds in unheard.items():
            since.labels(name).set(seconds)
        about = "Transitions that no aggregator has acknowledged yet."
        _plain(registry, "nodeguard_transitions_waiting", about, waiting)
    _plain(registry, "nodeguard_rounds", "Rounds judged since the agent began.", rounds)
    info = Gauge(
        "nodeguard_agent_info",
        "The agent, and what it takes the node for.",
        ["version", "platform"],
        registry=registry,
    )
    info.labels(__version__, verdict.platform).set(1)
    return generate_latest(registry).decode()


def _labels(one: Finding) -> tuple[str, ...]:
    return one.check, one.target, one.health.value, one.action.value, one.knowledge.value


def _plain(registry: CollectorRegistry, name: str, about: str, value: float) -> None:
    Gauge(name, about, registry=registry).set(value)


def _states(
    registry: CollectorRegistry,
    name: str,
    about: str,
    label: str,
    states: type[Health] | type[Knowledge],
    now: str,
) -> None:
    gauge = Gauge(name, about, [label], registry=registry)
    for state in states:
        gauge.labels(state.value).set(state == now)
