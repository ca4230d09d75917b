from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from nodeguard.agent.metrics import AgentSnapshot
from nodeguard.model.finding import DataStatus, Health, ReadFailure, Verdict
from tests.agent.metrics_text import metrics_text
from tests.judge.judged_node import finding


def series(verdict: Verdict) -> dict[tuple[str, ...], float]:
    """Values by name and values of the labels."""
    text = metrics_text(AgentSnapshot(verdict, {"nvml": 3.5}, 7))
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_metrics_of_health_findings_and_sources() -> None:
    unread = (ReadFailure("kmsg", ("node", "gpu/0000:1b:00"), "kmsg", "refused"),)
    values = series(
        Verdict(Health.FATAL, DataStatus.STALE, (finding("a", "gpu/0000:1b:00"),), read_failures=unread)
    )
    assert values["nodeguard_node_health", "fatal"] == 1
    assert values["nodeguard_node_health", "ok"] == 0
    assert values["nodeguard_node_data_status", "stale"] == 1
    assert values["nodeguard_finding", "monitor", "a", "fresh", "suspect", "gpu/0000:1b:00"] == 1
    assert values["nodeguard_unreadable_targets", "kmsg"] == 2
    assert values["nodeguard_source_last_read_timestamp_seconds", "nvml"] == 3.5
    assert values["nodeguard_evaluations_total",] == 7


def test_a_healthy_node_has_at_most_15_series() -> None:
    assert len(series(Verdict(Health.OK, DataStatus.FRESH, evaluated=1))) <= 15


def test_without_evaluated_checks_every_health_is_0() -> None:
    values = series(Verdict(Health.OK, DataStatus.UNKNOWN))
    assert {value for (name, *_), value in values.items() if name == "nodeguard_node_health"} == {0.0}


def test_many_findings_are_counted_beyond_the_worst() -> None:
    many = tuple(finding(f"check-{at}") for at in range(50))
    values = series(Verdict(Health.SUSPECT, DataStatus.FRESH, many))
    assert sum(1 for name, *_ in values if name == "nodeguard_finding") == 20
    assert values["nodeguard_findings_omitted",] == 30
