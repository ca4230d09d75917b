"""The alert rules of the aggregator, judged by promtool itself, and the metrics that they look at."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodeguard.aggregator.identity.loopback import Anybody
from nodeguard.aggregator.ingest.server import Ingest
from nodeguard.aggregator.metrics import as_metrics
from nodeguard.aggregator.reload import PolicyFile
from tests.aggregator.test_hearing import report
from tests.aggregator.test_service import ONE, Scene
from tests.alerts.test_agent import OF_PROMETHEUS, ROOT, RUNBOOK, promtool
from tests.e2e.processes import installed

RULES = ROOT / "daemonset" / "alerts" / "aggregator.yaml"
TOLD = Path(__file__).parent / "aggregator.yaml"


def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


async def _metrics() -> str:
    """What an aggregator serves that has marked a node."""
    scene = Scene()
    scene.hearing(ONE, report(fatal=True))
    await scene.turn()
    await scene.turn(1.0)
    ingest = Ingest(Anybody("127.0.0.1"), scene.hearing, lambda: None, lambda _: None)
    ingest.exchange.counts.update({"report": 1, "bytes": 100, "refused 401": 2})
    policy = PolicyFile(Path("/nowhere"), {}, lambda _: None)
    return as_metrics(scene.service, ingest, policy, scene.now)


def test_they_are_rules() -> None:
    done = promtool("check", "rules", str(RULES))
    assert done.returncode == 0, done.stdout + done.stderr


def test_they_fire_and_stay_quiet_as_told() -> None:
    done = promtool("test", "rules", str(TOLD))
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_of_them_fires_and_stays_quiet_somewhere() -> None:
    told = [one for test in yaml.safe_load(TOLD.read_text())["tests"] for one in test["alert_rule_test"]]
    for outcome in (True, False):
        assert {one["alertname"] for one in told if bool(one["exp_alerts"]) is outcome} == {
            rule["alert"] for rule in alerts()
        }


@pytest.mark.parametrize("rule", alerts(), ids=lambda rule: rule["alert"])
def test_each_has_a_severity_a_summary_and_a_runbook(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in {"critical", "warning", "none"}
    assert rule["annotations"]["summary"]
    page, _, place = rule["annotations"]["runbook_url"].partition("#")
    assert ROOT / page == RUNBOOK
    assert place == rule["alert"].lower()
    assert f"\n## {rule['alert']}\n" in RUNBOOK.read_text()


async def test_each_looks_at_metrics_that_nodeguard_writes() -> None:
    known: dict[str, set[str]] = {}
    for name, labels in re.findall(r"^(nodeguard_\w+)(?:\{(.*)\})? ", await _metrics(), re.MULTILINE):
        known.setdefault(name, set()).update(re.findall(r'(\w+)="', labels))
    for rule in alerts():
        for name, labels in re.findall(r"(nodeguard_\w+)\{(.*?)\}", rule["expr"]):
            assert set(re.findall(r"(\w+)=", labels)) <= known[name] | OF_PROMETHEUS
        assert set(re.findall(r"nodeguard_\w+", rule["expr"])) <= known.keys()


async def test_what_is_served_keeps_to_prometheus_conventions() -> None:
    said = await _metrics()
    command = [installed("promtool"), "check", "metrics"]
    done = subprocess.run(command, input=said, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    assert "# TYPE nodeguard_messages_total counter" in said
    assert 'nodeguard_messages_total{result="refused 401"} 2.0' in said
    assert 'nodeguard_marked_nodes{mark="quarantine"} 1.0' in said
    assert 'nodeguard_ledger_used_ratio{ledger="fleet"} 1.0' in said
