"""The alert rules of the aggregator; the metrics that they look at."""

from __future__ import annotations

import re
from pathlib import Path

from msgspec.structs import replace
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from nodeguard.aggregator.identity.caller import RequestRefusedError
from nodeguard.aggregator.identity.insecure import InsecureAuthenticator
from nodeguard.aggregator.ingest.server import IngestServer
from nodeguard.aggregator.metrics import AggregatorMetrics
from nodeguard.aggregator.monitoring_server import Page
from nodeguard.aggregator.policy.reload import PolicyReloader
from nodeguard.local.open_files import ConnectionCapacity
from nodeguard.model.policy import NodeLocation
from tests.aggregator.test_report_handler import report
from tests.aggregator.test_service import ONE, Scene
from tests.alerts.rules import OF_PROMETHEUS, Promtool, alerts, labels_by_metric


async def _page(accept: str) -> Page:
    """What an aggregator serves that has marked a node of a rack, and holds a check."""
    scene = Scene()
    scene.planner.set_policy(
        replace(scene.planner.policy, locations=(NodeLocation("node-1", {"rack": "r1"}),))
    )
    scene.hearing(ONE, report(fatal=True))
    await scene.turn()
    await scene.turn(1.0)
    scene.service.capacity = ConnectionCapacity(1024, 768)
    scene.hearing.message_refused(
        "node-1", RequestRefusedError(409, "another boot: wait", reason="other-boot")
    )
    ingest = IngestServer(InsecureAuthenticator("127.0.0.1"), scene.hearing, lambda: None, lambda _: None)
    ingest.endpoint.requests.update({("report", 200): 1, ("unknown", 401): 2})
    ingest.endpoint.connection_errors["timeout"] += 1
    policy = PolicyReloader(Path("/nowhere"), {}, lambda _: None)
    scene.planner.diagnosis.restore_suppression("gpu-lost", "", scene.now.mono)
    metrics = AggregatorMetrics(scene.service, ingest, policy, lambda: scene.now)
    scene.service.on_planned(0.003)
    ingest.endpoint.on_handled("report", 0.0002)
    return metrics.page(accept)


async def _metrics() -> str:
    body = (await _page("")).body
    return body if isinstance(body, str) else body.decode()


async def test_each_looks_at_metrics_that_nodeguard_writes() -> None:
    known = labels_by_metric(await _metrics())
    for rule in alerts("aggregator"):
        for name, labels in re.findall(r"(nodeguard_\w+)\{(.*?)\}", rule["expr"]):
            assert set(re.findall(r"(\w+)=", labels)) <= known[name] | OF_PROMETHEUS
        assert set(re.findall(r"nodeguard_\w+", rule["expr"])) <= known.keys()


async def test_what_is_served_keeps_to_prometheus_conventions(promtool: Promtool) -> None:
    said = await _metrics()
    done = promtool("check", "metrics", stdin=said)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    for line in (
        "# TYPE nodeguard_aggregator_requests_total counter",
        'nodeguard_aggregator_requests_total{code="401",kind="unknown"} 2.0',
        'nodeguard_aggregator_connection_errors_total{reason="timeout"} 1.0',
        'nodeguard_aggregator_plan_duration_seconds_bucket{le="0.005"} 1.0',
        'nodeguard_aggregator_message_duration_seconds_count{kind="report"} 1.0',
        'nodeguard_aggregator_marked_nodes{mark="quarantine"} 1.0',
        'nodeguard_aggregator_nodes{health="unknown"} 0.0',
        'nodeguard_aggregator_incidents{state="marked"} 1.0',
        'nodeguard_aggregator_budget_used_ratio{budget="fleet"} 1.0',
        'nodeguard_aggregator_budget_limit_nodes{budget="fleet"} 1.0',
        'nodeguard_aggregator_degraded_domains{state="marked",topology="rack"} 0.0',
        'nodeguard_aggregator_suppressed_checks{check="gpu-lost"} 1.0',
        "nodeguard_aggregator_repeat_offenders 0.0",
        'nodeguard_aggregator_refused_messages_total{reason="other-boot"} 1.0',
        "nodeguard_aggregator_refused_nodes 1.0",
        "nodeguard_aggregator_agent_connections_limit 768.0",
        "nodeguard_aggregator_incidents_omitted_total 0.0",
        'nodeguard_aggregator_topology_domains{topology="rack"} 1.0',
        'nodeguard_aggregator_topology_unplaced_nodes{topology="rack"} 0.0',
    ):
        assert line in said.splitlines()
    names = set(re.findall(r"^# TYPE (\w+)", said, re.MULTILINE))
    assert {name for name in names if not name.startswith("nodeguard_aggregator_")} <= {
        "process_cpu_seconds_total", "process_max_fds", "process_open_fds", "process_resident_memory_bytes",
        "process_start_time_seconds", "process_virtual_memory_bytes",
    }  # fmt: skip


async def test_open_metrics_are_served_on_request() -> None:
    page = await _page("application/openmetrics-text; version=1.0.0")
    assert page.content_type.startswith("application/openmetrics-text")
    text = page.body if isinstance(page.body, str) else page.body.decode()
    families = list(text_string_to_metric_families(text))  # type: ignore[no-untyped-call]
    assert "nodeguard_aggregator_plans" in {family.name for family in families}
