"""What the agent shows of the node's health, in Prometheus' text format. Telemetry is another exporter's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from nodeguard import __version__
from nodeguard.model.finding import DataStatus, Finding, Health, ReadFailure, Verdict
from nodeguard.wire.exposition import Sample, gauge, plain, states

# Findings shown one by one, worst first; the rest is counted: series cost memory in every Prometheus.
_MOST = 20


def render_metrics(
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
    healthy = "Health of the node, 1 for its state; for none where nothing could be judged."
    known = "How well the node's health is known, 1 for its state."
    left_out = max(0, len(verdict.findings) - _MOST)
    families = [
        states("nodeguard_node_health", healthy, "health", Health, verdict.known_health),
        states("nodeguard_node_knowledge", known, "knowledge", DataStatus, verdict.data_status),
        finding_metrics(verdict.findings[:_MOST]),
        plain("nodeguard_findings_left_out", "Findings that are not shown one by one.", left_out),
        unreadable_metrics(verdict.read_failures),
        gauge("nodeguard_source_age_seconds", "Time since a source was read.", _each("source", ages)),
        *([] if unheard is None else _of_receivers(unheard, waiting)),
        plain("nodeguard_rounds", "Rounds judged since the agent began.", rounds),
        gauge(
            "nodeguard_agent_info",
            "The agent, and what it takes the node for.",
            [({"version": __version__, "platform": verdict.platform}, 1)],
        ),
    ]
    return "".join(families)


def finding_metrics(findings: Iterable[Finding]) -> str:
    """A gauge for each finding."""
    return gauge("nodeguard_finding", "Finding that is not ok.", [(_labels(one), 1) for one in findings])


def unreadable_metrics(unread: Iterable[ReadFailure]) -> str:
    """How many slots each source could not read in full."""
    slots: dict[str, float] = {}
    for missing in unread:
        slots[missing.source] = slots.get(missing.source, 0) + len(missing.targets)
    about = "Slots of which something could not be read."
    return gauge("nodeguard_unread_slots", about, _each("source", slots))


def _of_receivers(unheard: Mapping[str, float], waiting: int) -> list[str]:
    about = "Time since an aggregator acknowledged a message of this node."
    waits = "Transitions that no aggregator has acknowledged yet."
    return [
        gauge("nodeguard_acknowledged_age_seconds", about, _each("receiver", unheard)),
        plain("nodeguard_transitions_waiting", waits, waiting),
    ]


def _each(label: str, values: Mapping[str, float]) -> Iterable[Sample]:
    return (({label: name}, value) for name, value in values.items())


def _labels(one: Finding) -> dict[str, str]:
    return {
        "check": one.check,
        "target": one.target,
        "health": one.health.value,
        "action": one.action.value,
        "knowledge": one.data_status.value,
    }
