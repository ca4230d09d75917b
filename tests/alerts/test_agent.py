"""The alert rules of the agent, and the metrics that they look at."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from nodeguard.cli.render.verdict_metrics import as_metrics
from nodeguard.model.finding import Action, DataStatus, Finding, Health, Verdict
from nodeguard.model.instant import Instant
from tests.alerts.rules import OF_PROMETHEUS, Promtool, alerts, labels_by_metric, rules, told

# What the agent serves beside the metrics of `nodeguard check`.
OF_THE_AGENT = {
    "nodeguard_findings_omitted": set[str](),
    "nodeguard_source_last_read_timestamp_seconds": {"source"},
}


def metrics() -> dict[str, set[str]]:
    """Labels by metric, as nodeguard writes them."""
    finding = Finding(
        "a", "node", "", Health.FATAL, DataStatus.FRESH, Action.MONITOR, 0.0, "", (), "", "", "", ""
    )
    verdict = Verdict(Health.FATAL, DataStatus.FRESH, (finding,), evaluated=1)
    return {**OF_THE_AGENT, **labels_by_metric(as_metrics(verdict, Instant(0, 0, "")))}


def test_a_rule_that_never_fires_is_found(tmp_path: Path, promtool: Promtool) -> None:
    (tmp_path / "agent.yaml").write_text(rules("agent").read_text().replace("== 1", "== 2"))
    wrong = tmp_path / "told.yaml"
    wrong.write_text(told("agent").read_text().replace("../../daemonset/alerts/agent.yaml", "agent.yaml"))
    assert promtool("test", "rules", str(wrong)).returncode == 1


@pytest.mark.parametrize("rule", alerts("agent"), ids=lambda rule: rule["alert"])
def test_each_looks_at_metrics_that_nodeguard_writes(rule: dict[str, Any]) -> None:
    said = f"{rule['expr']} {rule['annotations']['summary']}".replace("\\", "")
    known = metrics()
    for name, labels in re.findall(r"(nodeguard_\w+)\{(.*?)\}", said):
        assert set(re.findall(r"(\w+)=", labels)) <= known[name] | OF_PROMETHEUS
    labels = set[str]().union(*(known[name] for name in re.findall(r"nodeguard_\w+", said)))
    assert set(re.findall(r"\.Labels\.(\w+)", said)) <= labels
    assert set(re.findall(r"\$labels\.(\w+)", said)) <= OF_PROMETHEUS
