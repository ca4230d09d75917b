"""Each shipped alert fires in a real Prometheus, on the metrics of the real parts of agents and aggregators."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from msgspec.structs import replace

from nodeguard.agent.metrics import AgentSnapshot
from nodeguard.model.finding import Health
from tests.agent.metrics_text import metrics_text
from tests.alerts.pages import verdict
from tests.alerts.rules import alerts, rules
from tests.alerts.troubled_aggregator import TroubledAggregator
from tests.e2e.monitoring import Monitoring, notifications
from tests.e2e.processes import until
from tests.ports import free_address
from tests.webhooks import WebhookReceiver

pytestmark = [pytest.mark.slow, pytest.mark.promtool]

COMPONENTS = ("agent", "node", "aggregator")
ALERTS = [rule["alert"] for component in COMPONENTS for rule in alerts(component)]


def agent_page(health: Health) -> str:
    """Return the page of an agent on an unhealthy node that last read a source long ago, and reports to no aggregator."""
    return metrics_text(
        AgentSnapshot(replace(verdict(), health=health), {"nvml": 1.0}, 1, {"aggregator": 0.0})
    )


@contextmanager
def served(address: str, pages: Mapping[str, Callable[[], str]]) -> Iterator[None]:
    """Serve pages by their paths."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = pages[self.path]().encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    host, _, port = address.rpartition(":")
    server = ThreadingHTTPServer((host, int(port)), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_every_alert_fires(tmp_path: Path) -> None:
    aggregator = TroubledAggregator()
    asyncio.run(aggregator.fail(tmp_path))
    pages = {
        "/aggregator": aggregator.page,
        "/fatal": lambda: agent_page(Health.FATAL),
        "/suspect": lambda: agent_page(Health.SUSPECT),
    }
    address, stopped = free_address(), free_address()

    def job(name: str, *paths: str, down: tuple[str, ...] = ()) -> dict[str, object]:
        targets = [
            {"targets": [address], "labels": {"__metrics_path__": path, "instance": path}} for path in paths
        ]
        return {"job_name": name, "static_configs": [*targets, {"targets": list(down)}]}

    # The shipped rules, which wait a second in place of minutes: promtool tests them with their own times.
    files = []
    for component in COMPONENTS:
        files.append(tmp_path / f"{component}.yaml")
        files[-1].write_text(re.sub(r"\bfor: \d+[mh]", "for: 1s", rules(component).read_text()))
    jobs = [
        job("nodeguard-aggregator", "/aggregator", down=(stopped,)),
        job("nodeguard", "/fatal", "/suspect"),
    ]
    receiver = WebhookReceiver()
    monitoring = Monitoring(tmp_path, jobs, files, receiver, ALERTS)

    def missing() -> set[str]:
        return set(ALERTS) - {name for name, _ in notifications(receiver, "firing")}

    with closing(aggregator), receiver.serving(), monitoring.running():
        with served(address, pages):
            # While an aggregator answers, it reports the agents that are down.
            last = {"NodeguardNoActiveAggregator", "NodeguardAgentDown"}
            until(lambda: missing() <= last, monitoring.log)
            assert missing() <= last
        until(lambda: not missing(), monitoring.log)
