"""The alert rules of the aggregator; the metrics that they look at."""

from __future__ import annotations

import re
from pathlib import Path

from msgspec.structs import replace

from nodeguard.aggregator.identity.caller import RequestRefusedError
from nodeguard.aggregator.identity.insecure import InsecureAuthenticator
from nodeguard.aggregator.ingest.server import IngestServer
from nodeguard.aggregator.metrics import render_metrics
from nodeguard.aggregator.policy.reload import PolicyReloader
from nodeguard.local.open_files import ConnectionCapacity
from nodeguard.model.policy import NodeLocation
from tests.aggregator.test_report_handler import report
from tests.aggregator.test_service import ONE, Scene
from tests.alerts.rules import OF_PROMETHEUS, Promtool, alerts, labels_by_metric


async def _metrics() -> str:
    """What an aggregator serves that has marked a node of a rack, and holds a check."""
    scene = Scene()
    scene.planner.set_policy(replace(scene.planner.policy, places=(NodeLocation("node-1", {"rack": "r1"}),)))
    scene.hearing(ONE, report(fatal=True))
    await scene.turn()
    await scene.turn(1.0)
    scene.service.capacity = ConnectionCapacity(1024, 768)
    scene.hearing.message_refused(
        "node-1", RequestRefusedError(409, "another boot: wait", reason="other-boot")
    )
    ingest = IngestServer(InsecureAuthenticator("127.0.0.1"), scene.hearing, lambda: None, lambda _: None)
    ingest.endpoint.counts.update({"report": 1, "bytes": 100, "refused 401": 2})
    policy = PolicyReloader(Path("/nowhere"), {}, lambda _: None)
    scene.planner.diagnosis.restore_suppression("gpu-lost", "", scene.now.mono)
    return render_metrics(scene.service, ingest, policy, scene.now)


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
    assert "# TYPE nodeguard_messages_total counter" in said
    assert 'nodeguard_messages_total{result="refused 401"} 2.0' in said
    assert 'nodeguard_marked_nodes{mark="quarantine"} 1.0' in said
    assert 'nodeguard_ledger_used_ratio{ledger="fleet"} 1.0' in said
    assert 'nodeguard_aggregator_domains{state="marked",view="rack"} 0.0' in said
    assert 'nodeguard_aggregator_checks_held{check="gpu-lost"} 1.0' in said
    assert "nodeguard_aggregator_lemons 0.0" in said
    assert 'nodeguard_aggregator_refused_messages_total{reason="other-boot"} 1.0' in said
    assert "nodeguard_aggregator_refused_nodes 1.0" in said
    assert "nodeguard_aggregator_connections_max 768.0" in said
    assert "nodeguard_aggregator_incidents_left_out_total 0.0" in said
    assert 'nodeguard_aggregator_view_domains{view="rack"} 1.0' in said
    assert 'nodeguard_aggregator_view_nodes_lacking{view="rack"} 0.0' in said
