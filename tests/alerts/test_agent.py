"""The alert rules of the agent, judged by promtool itself."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodeguard.cli.prometheus import as_metrics
from nodeguard.model.finding import Action, Finding, Health, Knowledge, Verdict
from nodeguard.model.instant import Instant

ROOT = Path(__file__).parent.parent.parent
RULES = ROOT / "daemonset" / "alerts" / "agent.yaml"
RUNBOOK = ROOT / "docs" / "alerts.md"
TOLD = Path(__file__).parent / "agent.yaml"

# What the agent serves beside the metrics of `nodeguard check`, and what Prometheus itself adds.
OF_THE_AGENT = {"nodeguard_findings_left_out": set[str](), "nodeguard_source_age_seconds": {"source"}}
OF_PROMETHEUS = {"job", "instance"}


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    path = shutil.which("promtool")
    assert path is not None, "promtool is missing: run `make test-environment`"
    return subprocess.run([path, *arguments], capture_output=True, text=True, timeout=60, check=False)


def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def metrics() -> dict[str, set[str]]:
    """Labels by metric, as nodeguard writes them."""
    finding = Finding(
        "a", "node", "", Health.FATAL, Knowledge.FRESH, Action.WATCH, 0.0, "", (), "", "", "", ""
    )
    verdict = Verdict(Health.FATAL, Knowledge.FRESH, (finding,), judged=1)
    found = dict(OF_THE_AGENT)
    for name, labels in re.findall(
        r"^(nodeguard_\w+)(?:\{(.*)\})? ", as_metrics(verdict, Instant(0, 0, "")), re.MULTILINE
    ):
        found.setdefault(name, set()).update(re.findall(r'(\w+)="', labels))
    return found


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


def test_a_rule_that_never_fires_is_found(tmp_path: Path) -> None:
    (tmp_path / "agent.yaml").write_text(RULES.read_text().replace("== 1", "== 2"))
    told = tmp_path / "told.yaml"
    told.write_text(TOLD.read_text().replace("../../daemonset/alerts/agent.yaml", "agent.yaml"))
    assert promtool("test", "rules", str(told)).returncode == 1


@pytest.mark.parametrize("rule", alerts(), ids=lambda rule: rule["alert"])
def test_each_has_a_severity_a_summary_and_a_runbook(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in {"critical", "warning"}
    assert rule["annotations"]["summary"]
    page, _, place = rule["annotations"]["runbook_url"].partition("#")
    assert ROOT / page == RUNBOOK
    assert place == rule["alert"].lower()
    assert f"\n## {rule['alert']}\n" in RUNBOOK.read_text()


@pytest.mark.parametrize("rule", alerts(), ids=lambda rule: rule["alert"])
def test_each_looks_at_metrics_that_nodeguard_writes(rule: dict[str, Any]) -> None:
    said = f"{rule['expr']} {rule['annotations']['summary']}".replace("\\", "")
    known = metrics()
    for name, labels in re.findall(r"(nodeguard_\w+)\{(.*?)\}", said):
        assert set(re.findall(r"(\w+)=", labels)) <= known[name] | OF_PROMETHEUS
    labels = set[str]().union(*(known[name] for name in re.findall(r"nodeguard_\w+", said)))
    assert set(re.findall(r"\.Labels\.(\w+)", said)) <= labels
    assert set(re.findall(r"\$labels\.(\w+)", said)) <= OF_PROMETHEUS
