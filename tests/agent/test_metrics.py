from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from nodeguard.agent.metrics import render_metrics
from nodeguard.model.finding import DataStatus, Health, ReadFailure, Verdict
from nodeguard.wire.exposition import gauge
from tests.judge.scene import finding


def series(verdict: Verdict) -> dict[tuple[str, ...], float]:
    """Values by name and values of the labels."""
    text = render_metrics(verdict, {"nvml": 3.5}, 7)
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_states_findings_and_ages() -> None:
    unread = (ReadFailure("kmsg", ("node", "gpu/0000:1b:00"), "kmsg", "refused"),)
    found = series(
        Verdict(Health.FATAL, DataStatus.STALE, (finding("a", "gpu/0000:1b:00"),), read_failures=unread)
    )
    assert found["nodeguard_node_health", "fatal"] == 1
    assert found["nodeguard_node_health", "ok"] == 0
    assert found["nodeguard_node_data_status", "stale"] == 1
    assert found["nodeguard_finding", "monitor", "a", "fresh", "suspect", "gpu/0000:1b:00"] == 1
    assert found["nodeguard_unreadable_targets", "kmsg"] == 2
    assert found["nodeguard_source_last_read_timestamp_seconds", "nvml"] == 3.5
    assert found["nodeguard_evaluations_total",] == 7


def test_a_healthy_node_costs_few_series() -> None:
    assert len(series(Verdict(Health.OK, DataStatus.FRESH, evaluated=1))) <= 15


def test_a_node_where_nothing_could_be_judged_has_no_health() -> None:
    found = series(Verdict(Health.OK, DataStatus.UNKNOWN))
    assert {value for (name, *_), value in found.items() if name == "nodeguard_node_health"} == {0.0}


def test_many_findings_are_counted_beyond_the_worst() -> None:
    many = tuple(finding(f"check-{at}") for at in range(50))
    found = series(Verdict(Health.SUSPECT, DataStatus.FRESH, many))
    assert sum(1 for name, *_ in found if name == "nodeguard_finding") == 20
    assert found["nodeguard_findings_omitted",] == 30


@given(
    about=st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Zl", "Zp"]) | st.just("\n")),
    values=st.dictionaries(st.text(st.characters(codec="utf-8")), st.floats(-999_999, 999_999), max_size=4),
)
def test_the_format_is_the_reference_s_byte_by_byte(about: str, values: dict[str, float]) -> None:
    registry = CollectorRegistry()
    theirs = Gauge("a_b", about, ["target", "check"], registry=registry)
    for value, number in values.items():
        theirs.labels(value, "x").set(number)
    ours = gauge(
        "a_b", about, [({"target": value, "check": "x"}, number) for value, number in values.items()]
    )
    assert ours.encode() == generate_latest(registry)
