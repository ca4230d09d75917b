"""The Prometheus metrics of the agent. GPU telemetry is not among them: other exporters have it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from nodeguard import __version__
from nodeguard.model.finding import Verdict
from nodeguard.pipeline.verdict_metrics import verdict_metrics
from nodeguard.wire.exposition import Sample, counter, gauge, plain

# Findings with a series of their own, worst first; the rest is counted: series cost memory in Prometheus.
_MAX_FINDINGS = 20


def render_metrics(
    verdict: Verdict,
    read_at: Mapping[str, float],
    evaluations: int,
    acked_at: Mapping[str, float] | None = None,
    spooled: int = 0,
) -> str:
    """Return the metrics of an agent in Prometheus' text format.

    read_at: Unix time of each source's latest reading. evaluations: since the start. acked_at: Unix time of
    each aggregator's latest acknowledgement, 0 for never; None without aggregators. spooled: transitions that
    no aggregator has acknowledged.
    """
    omitted = max(0, len(verdict.findings) - _MAX_FINDINGS)
    findings = verdict.findings[:_MAX_FINDINGS]
    families = [
        verdict_metrics(verdict.known_health, verdict.data_status, findings, verdict.read_failures),
        plain("nodeguard_findings_omitted", "Findings without a series of their own.", omitted),
        gauge(
            "nodeguard_source_last_read_timestamp_seconds",
            "Unix time at which a source was last read.",
            _by("source", read_at),
        ),
        *([] if acked_at is None else _delivery_metrics(acked_at, spooled)),
        counter("nodeguard_evaluations_total", "Evaluations since the agent started.", [({}, evaluations)]),
        gauge(
            "nodeguard_agent_info",
            "Version of the agent, and the platform that it has recognised.",
            [({"version": __version__, "platform": verdict.platform}, 1)],
        ),
    ]
    return "".join(families)


def _delivery_metrics(acked_at: Mapping[str, float], spooled: int) -> list[str]:
    return [
        gauge(
            "nodeguard_last_acknowledged_timestamp_seconds",
            "Unix time at which an aggregator last acknowledged a message, 0 for never.",
            _by("endpoint", acked_at),
        ),
        plain("nodeguard_spooled_transitions", "Transitions that no aggregator has acknowledged.", spooled),
    ]


def _by(label: str, values: Mapping[str, float]) -> Iterable[Sample]:
    return (({label: name}, value) for name, value in values.items())
