from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from nodeguard.agent.metrics import as_metrics
from nodeguard.model.finding import Health, Knowledge, Unread, Verdict
from tests.judge.scene import finding


def series(verdict: Verdict) -> dict[tuple[str, ...], float]:
    """Values by name and values of the labels."""
    text = as_metrics(verdict, {"nvml": 3.5}, 7)
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_states_findings_and_ages() -> None:
    unread = (Unread("kmsg", ("node", "gpu/0000:1b:00"), "kmsg", "refused"),)
    found = series(Verdict(Health.FATAL, Knowledge.STALE, (finding("a", "gpu/0000:1b:00"),), unread=unread))
    assert found["nodeguard_node_health", "fatal"] == 1
    assert found["nodeguard_node_health", "ok"] == 0
    assert found["nodeguard_node_knowledge", "stale"] == 1
    assert found["nodeguard_finding", "watch", "a", "suspect", "fresh", "gpu/0000:1b:00"] == 1
    assert found["nodeguard_unread_slots", "kmsg"] == 2
    assert found["nodeguard_source_age_seconds", "nvml"] == 3.5
    assert found["nodeguard_rounds",] == 7


def test_a_healthy_node_costs_few_series() -> None:
    assert len(series(Verdict(Health.OK, Knowledge.FRESH))) <= 15


def test_many_findings_are_counted_beyond_the_worst() -> None:
    many = tuple(finding(f"check-{at}") for at in range(50))
    found = series(Verdict(Health.SUSPECT, Knowledge.FRESH, many))
    assert sum(1 for name, *_ in found if name == "nodeguard_finding") == 20
    assert found["nodeguard_findings_left_out",] == 30
