"""A Prometheus with alert rules, and an Alertmanager that sends to a webhook."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml

from scripts.dashboards import dashboards
from tests.controlplane.cluster import Cluster
from tests.daemonset.manifests import AGENT, AGGREGATOR, pods
from tests.e2e.processes import command_path, query_prometheus, running
from tests.ports import free_address
from tests.webhooks import WebhookReceiver


class Monitoring:
    """Runs both in a directory. alerts: names of those that are sent to the receiver, each by itself.

    scrape_configs, rules: of Prometheus. interval: between two readings of the metrics and the rules. settings: of the receiver, as
    Alertmanager has them, in place of those for a webhook.
    """

    def __init__(
        self,
        directory: Path,
        scrape_configs: Sequence[Mapping[str, Any]],
        rules: Sequence[Path],
        receiver: WebhookReceiver,
        alerts: Sequence[str],
        interval: str = "1s",
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self._directory = directory
        self.log = directory / "prometheus.log"
        self.server, self._manager = free_address(), free_address()
        matcher = f'alertname=~"{"|".join(alerts)}"'
        route = {"receiver": "pager", "group_by": ["..."], "group_wait": "1s", "group_interval": "1s"}
        webhook = {"webhook_configs": [{"url": receiver.url, "send_resolved": True}]}
        pager = {**(settings or webhook), "name": "pager"}
        self._write(
            "alertmanager",
            {
                "route": {"receiver": "none", "routes": [{**route, "matchers": [matcher]}]},
                "receivers": [{"name": "none"}, pager],
            },
        )
        self._write(
            "prometheus",
            {
                "global": {"scrape_interval": interval, "evaluation_interval": interval},
                "rule_files": [str(path) for path in rules],
                "alerting": {"alertmanagers": [{"static_configs": [{"targets": [self._manager]}]}]},
                "scrape_configs": list(scrape_configs),
            },
        )

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the result of an expression; empty before Prometheus answers."""
        data = query_prometheus(self.server, f"query?query={quote(expression)}")
        return data["result"] if data else []

    def empty_panels(self, dashboard: str) -> list[str]:
        """Return the panels of a dashboard with a query that has no result, or that Prometheus refuses."""
        panels = json.loads(dict(dashboards())[dashboard])["panels"]
        return [
            panel["title"]
            for panel in panels
            for target in panel["targets"]
            if not self.query(target["expr"])
        ]

    @contextmanager
    def running(self) -> Iterator[None]:
        with (
            running(
                self._directory / "alertmanager.log",
                command_path("prometheus-alertmanager"),
                f"--config.file={self._directory}/alertmanager.yaml",
                f"--storage.path={self._directory}/alerts",
                f"--web.listen-address={self._manager}",
                "--cluster.listen-address=",
            ),
            running(
                self.log,
                command_path("prometheus"),
                f"--config.file={self._directory}/prometheus.yaml",
                f"--storage.tsdb.path={self._directory}/series",
                f"--web.listen-address={self.server}",
                "--rules.alert.resend-delay=1s",
            ),
        ):
            yield

    def _write(self, name: str, settings: Mapping[str, Any]) -> None:
        (self._directory / f"{name}.yaml").write_text(yaml.safe_dump(dict(settings)))


def discovered_targets(cluster: Cluster) -> Iterator[dict[str, Any]]:
    """Yield the targets of nodeguard's pods with the labels that the discovery of Kubernetes gives them."""
    meta = "__meta_kubernetes_pod"
    for workload in (AGENT, AGGREGATOR):
        for pod in pods(cluster, workload):
            labels = {
                f"{meta}_label_app_kubernetes_io_name": pod["metadata"]["labels"]["app.kubernetes.io/name"],
                f"{meta}_node_name": pod["spec"].get("nodeName", ""),
            }
            address = pod["status"].get("podIP")
            for port in pod["spec"]["containers"][0]["ports"] if address else ():
                name = {f"{meta}_container_port_name": port["name"]}
                yield {"targets": [f"{address}:{port['containerPort']}"], "labels": labels | name}


def notifications(receiver: WebhookReceiver, status: str) -> list[tuple[str, str]]:
    """The alerts in the received notifications of a status: name, and node or target."""
    return [
        (alert["labels"]["alertname"], alert["labels"].get("node") or alert["labels"].get("target", ""))
        for body in receiver.bodies
        for alert in body["alerts"]
        if alert["status"] == status
    ]
