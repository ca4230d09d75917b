from __future__ import annotations

from collections import Counter
from math import inf
from types import SimpleNamespace
from typing import cast

from prometheus_client.parser import text_string_to_metric_families

from nodeguard.agent.agent import Agent
from nodeguard.agent.metrics import AgentMetrics, AgentSnapshot
from nodeguard.agent.reporting.delivery_queue import DeliveryQueue
from nodeguard.agent.reporting.endpoint_pool import EndpointPool
from nodeguard.model.finding import DataStatus, Health, ReadFailure, Verdict
from nodeguard.model.instant import Instant
from nodeguard.sources.nvml import GpuIdentity
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
    labels = ("", "monitor", "a", "fresh", "", "suspect", "00000000:1B:00.0", "gpu/0000:1b:00")
    assert values["nodeguard_finding", *labels] == 1
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


def test_findings_and_xids_have_the_labels_of_their_gpu() -> None:
    snapshot = AgentSnapshot(
        Verdict(
            Health.FATAL, DataStatus.FRESH, (finding("a", "gpu/0000:1b:00/nvlink/3"), finding("b", "node"))
        ),
        {},
        1,
        findings_raised={("a", Health.FATAL): 2},
        xid_events={("gpu/0000:1b:00", 79): 3, ("gpu/0000:1c:00", 0): 1},
        gpus={"gpu/0000:1b:00": GpuIdentity("4", "GPU-5c8f")},
    )
    families = {
        family.name: [sample for sample in family.samples if not sample.name.endswith("_created")]
        for family in text_string_to_metric_families(metrics_text(snapshot))
    }
    nvlink, node = (sample.labels for sample in families["nodeguard_finding"])
    assert (nvlink["gpu"], nvlink["UUID"], nvlink["pci_bus_id"]) == ("4", "GPU-5c8f", "00000000:1B:00.0")
    assert (node["gpu"], node["UUID"], node["pci_bus_id"]) == ("", "", "")
    (raised,) = families["nodeguard_findings"]
    assert (raised.labels, raised.value) == ({"check": "a", "health": "fatal"}, 2)
    counts = {
        sample.labels["xid"]: (sample.labels["gpu"], sample.value)
        for sample in families["nodeguard_xid_events"]
    }
    assert counts == {"79": ("4", 3), "0": ("", 1)}


class StartingAgent:
    """An agent with findings and Xids that a test sets."""

    def __init__(self) -> None:
        self.verdict = Verdict(Health.FATAL, DataStatus.FRESH)
        self.evaluations = 1
        self.findings_raised: Counter[tuple[str, Health]] = Counter()
        self.xid_events: Counter[tuple[str, int]] = Counter()
        self.sources: dict[str, float] = {"nvml": 0.0}
        self.mono = 0.0
        queue = SimpleNamespace(state=SimpleNamespace(spool=()))
        self.acked_at = {"https://aggregator.example": 0.0}
        endpoints = SimpleNamespace(acked_at=lambda: self.acked_at)
        self.metrics = AgentMetrics(
            cast("Agent", self),
            cast("DeliveryQueue", queue),
            cast("EndpointPool", endpoints),
            lambda now: (),
            wall=lambda: 2e9,
        )

    def now(self) -> Instant:
        return Instant(1e9 + self.mono, self.mono, "")

    def ages(self) -> dict[str, float]:
        return self.sources

    def gpu_identities(self) -> dict[str, GpuIdentity]:
        return {}

    def scrape(self, name: str, mono: float) -> list[float]:
        self.mono = mono
        families = [family for family in self.metrics.collect() if family.name == name]
        return [sample.value for family in families for sample in family.samples]


def test_the_first_finding_of_a_starting_agent_is_0_first() -> None:
    agent = StartingAgent()
    agent.findings_raised["gpu-lost", Health.FATAL] = 1
    assert agent.scrape("nodeguard_findings", 30.0) == [0]
    assert agent.scrape("nodeguard_findings", 150.0) == [1]


def test_xids_from_before_the_start_are_exported_at_once() -> None:
    agent = StartingAgent()
    assert agent.scrape("nodeguard_xid_events", 1.0) == []
    agent.sources["kmsg"] = 0.0
    agent.xid_events["gpu/0000:1b:00", 79] = 1
    assert agent.scrape("nodeguard_xid_events", 61.0) == [1]


def test_an_xid_after_the_log_was_read_is_0_first() -> None:
    agent = StartingAgent()
    agent.sources["kmsg"] = 0.0
    assert agent.scrape("nodeguard_xid_events", 1.0) == []
    agent.xid_events["gpu/0000:1b:00", 79] = 1
    assert agent.scrape("nodeguard_xid_events", 61.0) == [0]


def test_times_are_those_of_the_scrape_also_in_a_replay() -> None:
    agent = StartingAgent()
    agent.sources["nvml"] = 5.0
    agent.acked_at = {"https://aggregator.example": 90.0}
    assert agent.scrape("nodeguard_source_last_read_timestamp_seconds", 100.0) == [2e9 - 5.0]
    assert agent.scrape("nodeguard_last_acknowledged_timestamp_seconds", 100.0) == [2e9 - 10.0]
    agent.acked_at = {"https://aggregator.example": -inf}
    assert agent.scrape("nodeguard_last_acknowledged_timestamp_seconds", 100.0) == [0.0]
