"""Alert rules on the agent's metrics use metrics and labels that the agent serves."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from nodeguard.pipeline.verdict_metrics import INJECTED
from tests.alerts.pages import agent_page, check_page
from tests.alerts.rules import TARGET_LABELS, Promtool, alerts, labels_by_metric, rules, unit_tests


def test_promtool_detects_a_rule_that_never_fires(tmp_path: Path, promtool: Promtool) -> None:
    (tmp_path / "node.yaml").write_text(rules("node").read_text().replace("== 1", "== 2"))
    tests = tmp_path / "tests.yaml"
    text = unit_tests("node").read_text()
    tests.write_text(text.replace("../../daemonset/alerts/node.yaml", "node.yaml"))
    assert promtool("test", "rules", str(tests)).returncode == 1


@pytest.mark.parametrize("rule", [*alerts("agent"), *alerts("node")], ids=lambda rule: rule["alert"])
def test_rule_uses_existing_metrics_and_labels(rule: dict[str, Any]) -> None:
    text = f"{rule['expr']} {rule['annotations']['summary']}".replace("\\", "")
    metrics = labels_by_metric(agent_page())
    for name, matchers in re.findall(r"(nodeguard_\w+)\{(.*?)\}", text):
        assert set(re.findall(r"(\w+)=", matchers)) <= metrics[name] | TARGET_LABELS
    labels = set[str]().union(*(metrics[name] for name in re.findall(r"nodeguard_\w+", text)))
    assert set(re.findall(r"\.Labels\.(\w+)", text)) <= labels | TARGET_LABELS
    assert set(re.findall(r"\$labels\.(\w+)", text)) <= TARGET_LABELS | {INJECTED}


def test_only_the_agent_describes_series_of_injected_faults() -> None:
    assert INJECTED in agent_page()
    assert INJECTED not in check_page()
