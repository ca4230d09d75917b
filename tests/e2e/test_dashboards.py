"""Each panel of the dashboards shows values in a real Prometheus, of the metrics of a real aggregator and agent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from math import isfinite
from pathlib import Path
from typing import Any

import pytest

from nodeguard.agent.metrics import AgentSnapshot
from nodeguard.pipeline.new_series import ZERO_SECONDS
from scripts.dashboards import dashboards
from tests.agent.metrics_text import metrics_text
from tests.alerts.pages import busy_aggregator, verdict
from tests.e2e.monitoring import Monitoring
from tests.e2e.test_every_alert import served
from tests.fleet.scene import finding
from tests.ports import free_address
from tests.waiting import until
from tests.webhooks import WebhookReceiver

pytestmark = [pytest.mark.slow, pytest.mark.promtool]

NODE = "node-1"

# Panels that are 0 without a problem, as here.
ZERO = {"Degraded domains", "Stale agents", "Invalid policy", "Frozen or paused"}

# A panel of a duration has no number before the first event: here no mark is released after its soak period.
NO_NUMBER = {"Release delay"}

# What a panel shows while no aggregator is active: nothing, so that no green number hides a problem.
NEEDS_AGGREGATOR = {
    "Fatal nodes", "Fatal and schedulable", "Degraded domains", "Suppressed checks", "Fleet budget used",
    "Nodes by health", "Marked nodes", "Frozen or paused", "Plan age", "Marks of the node",
}  # fmt: skip


class Pages:
    """The pages of an aggregator and an agent on which something happens between two scrapes."""

    def __init__(self) -> None:
        self._scene, self._metrics, self._ingest, _ = asyncio.run(busy_aggregator())
        self._scrapes = 0
        self.is_active = True

    def aggregator(self) -> str:
        scene, metrics = self._scene, self._metrics
        scene.mono += ZERO_SECONDS / 2.0
        for listener in scene.service.plan_listeners:
            listener(scene.backend.plans[-1], scene.now)
        self._ingest.endpoint.requests["report", 200] += 1
        labels = next(iter(metrics.faults.faults))
        metrics.faults.faults[labels] += 1
        metrics.faults.node_seconds += 3_600.0
        metrics.faults.gpu_seconds_out[labels, False] += 60.0
        metrics.fault_repaired(labels, 7_200.0)
        metrics.finding_detected(finding("gpu-lost"), 1.0)
        metrics.marks_written(0.1)
        metrics.marks.released_marks["quarantine", "proven", False] += 1
        metrics.marks.set_marks["quarantine", "gpu-lost", True] += 1
        body = metrics.page("").body
        text = body if isinstance(body, str) else body.decode()
        return text if self.is_active else text.replace("_active 1.0", "_active 0.0")

    def agent(self) -> str:
        self._scrapes += 1
        xids = {("gpu/0000:3b:00", 79): self._scrapes}
        acked = {"https://aggregator.example": 1.0}
        unhealthy = verdict()
        return metrics_text(
            AgentSnapshot(unhealthy, {"nvml": 1.0}, 1, acked, xid_events=xids, injected=unhealthy.findings)
        )


def panels() -> Iterator[tuple[str, str]]:
    """Yield title and query of each panel, for one node."""
    for _, content in dashboards():
        for panel in json.loads(content)["panels"]:
            for target in panel["targets"]:
                yield panel["title"], target["expr"].replace("$instance", NODE)


@pytest.fixture
def pages() -> Pages:
    return Pages()


@pytest.fixture
def prometheus(tmp_path: Path, pages: Pages) -> Iterator[Monitoring]:
    address = free_address()

    def job(name: str, path: str) -> dict[str, Any]:
        target = {"targets": [address], "labels": {"__metrics_path__": path, "instance": NODE}}
        return {"job_name": name, "static_configs": [target]}

    receiver = WebhookReceiver()
    jobs = [job("nodeguard-aggregator", "/aggregator"), job("nodeguard", "/agent")]
    monitoring = Monitoring(tmp_path, jobs, [], receiver, ["none"])
    served_pages = {"/aggregator": pages.aggregator, "/agent": pages.agent}
    with receiver.serving(), monitoring.running(), served(address, served_pages):
        yield monitoring


def test_each_panel_shows_values(prometheus: Monitoring, pages: Pages) -> None:
    def without_value() -> list[str]:
        """Return the panels with a query that shows no number, or only 0."""
        missing = []
        for title, query in panels():
            values = [float(row["value"][1]) for row in prometheus.query(query)]
            if not any(
                (isfinite(value) and (value or title in ZERO)) or title in NO_NUMBER for value in values
            ):
                missing.append(f"{title}: {query}: {values}")
        return missing

    until(lambda: not without_value(), lambda: "\n".join(without_value()), every=0.5)
    pages.is_active = False
    shown = NEEDS_AGGREGATOR
    until(
        lambda: not any(prometheus.query(query) for title, query in panels() if title in shown),
        lambda: str([title for title, query in panels() if title in shown and prometheus.query(query)]),
        every=0.5,
    )
