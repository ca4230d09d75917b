"""One notification for each incident: a real aggregator, Prometheus with the shipped rules, and Alertmanager."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from msgspec.structs import replace

from nodeguard.model.finding import DataStatus, Health
from nodeguard.wire.digest import digest
from nodeguard.wire.encoding import encode
from nodeguard.wire.report import VERSION, Heartbeat, Message, Report, ReportedPassing
from tests.e2e.monitoring import Monitoring, notifications
from tests.e2e.processes import until
from tests.e2e.test_standalone import XID, Site, insecure_settings
from tests.fleet.leaves import PORT, down
from tests.paths import ROOT
from tests.webhooks import WebhookReceiver

pytestmark = [pytest.mark.slow, pytest.mark.promtool]

# Nodes of a leaf switch, and of the fleet.
LEAF, NODES = 16, 64

RULES = ROOT / "daemonset" / "alerts" / "aggregator.yaml"
POLICY = {
    "defaultMode": "enforce",
    "gracePeriod": {"quarantine": "1s"},
    "soak": {"initial": "1s"},
    "diagnosis": {"enforce": ["fabric"], "gracePeriod": "1s", "recovery": {"initial": "1s"}},
    "nodeLocations": [
        {"node": f"node-{number:02}", "fabric": f"pod-1/leaf-{number // LEAF}"} for number in range(NODES)
    ],
}

# The names of the alerts for incidents and fatal nodes.
ALERTS = ["NodeguardIncident", "NodeguardSuspectIncident", "NodeguardFatalNodeSchedulable"]

# The panels of the fleet with a query without data: marks are set on domains only, none is withheld or injected.
EMPTY = ["Fatal nodes that still get work", "Marks set", "Marks released", "Requests withheld", "Budgets"]


class ReportingNodes:
    """Simulated agents that report to an aggregator, with a heartbeat every five seconds."""

    def __init__(self, address: str) -> None:
        self._url = f"http://{address}/v1/messages"
        self._reports: dict[str, Report] = {}
        self._sequence = 0
        self._stopped = threading.Event()
        self._lock = threading.Lock()

    def report(self, numbers: Iterable[int], *, port_down: bool = False) -> None:
        """Report the state of the port of some nodes."""
        for number in numbers:
            report = Report(
                version=VERSION, node=f"node-{number:02}", boot_id="boot-1", sequence=0,
                health=Health.FATAL if port_down else Health.OK, data_status=DataStatus.FRESH,
                findings=(down(),) if port_down else (),
                passing=() if port_down else (ReportedPassing(("port-down",), (PORT,)),),
            )  # fmt: skip
            self._reports[report.node] = replace(report, digest=digest(report))
            self._send(self._reports[report.node])

    @contextmanager
    def heartbeats(self) -> Iterator[None]:
        thread = threading.Thread(target=self._beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stopped.set()
            thread.join()

    def _beat(self) -> None:
        while not self._stopped.wait(5.0):
            for report in list(self._reports.values()):
                self._send(
                    Heartbeat(
                        version=VERSION, node=report.node, boot_id="boot-1", digest=report.digest, sequence=0
                    )
                )

    def _send(self, message: Message) -> None:
        with self._lock:
            self._sequence += 1
            body = encode(replace(message, sequence=self._sequence))
            request = Request(self._url, body, {"Content-Type": "application/json"})
            with urlopen(request, timeout=30.0) as response:
                assert "acked" in response.read().decode()


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    receiver = WebhookReceiver()
    with receiver.serving():
        yield receiver


def test_each_incident_is_notified_once_and_resolved_once(tmp_path: Path, receiver: WebhookReceiver) -> None:
    site = Site(tmp_path)
    (tmp_path / "policy.yaml").write_text(json.dumps(POLICY))
    # The shipped rules, which wait seconds in place of minutes: promtool tests them with their own times.
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES.read_text().replace("[2m]", "[10s]").replace("for: 10m", "for: 30s"))
    job = {"job_name": "nodeguard-aggregator", "static_configs": [{"targets": [site.metrics]}]}
    monitoring = Monitoring(tmp_path, [job], [rules], receiver, ALERTS)
    nodes = ReportingNodes(site.listen)
    with ExitStack() as stack:
        stack.enter_context(site.aggregator("--insecure"))
        bundle = stack.enter_context(site.node("gpu-1", insecure_settings(site)))
        nodes.report(range(NODES))
        stack.enter_context(nodes.heartbeats())
        site.wait_for_reports(NODES + 1)
        stack.enter_context(monitoring.running())
        with (bundle / "kmsg").open("a") as kernel:
            kernel.write(XID)
        lost = ("NodeguardIncident", "gpu-1")
        until(lambda: notifications(receiver, "firing") == [lost], monitoring.log)
        (incident,) = [item["name"] for item in site.query("get", "incidents")["incidents"]]
        assert site.run("incidents", "clear", incident).returncode == 0
        until(lambda: notifications(receiver, "resolved") == [lost], monitoring.log)

        leaf = ("NodeguardIncident", "fabric/pod-1/leaf-0")
        nodes.report(range(LEAF), port_down=True)
        until(lambda: leaf in notifications(receiver, "firing"), site.log)
        until(lambda: monitoring.empty_panels("fleet.json") == EMPTY, monitoring.log)
        nodes.report(range(LEAF))
        until(lambda: leaf in notifications(receiver, "resolved"), site.log)
        assert notifications(receiver, "firing") == notifications(receiver, "resolved") == [lost, leaf]
