"""Alert rules: promtool accepts them, their unit tests pass, and the runbook describes each."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.alerts.rules import MAIN, RUNBOOK, Promtool, alerts, rules, unit_tests
from tests.docs.pages import yaml_blocks
from tests.paths import ROOT

# No engineer is paged while the policy only observes, or for an incident of which the mark is not enforced.
BY_MODE = {
    f'{{{{ if eq $labels.mode "observe" }}}}info{{{{ else }}}}{severity}{{{{ end }}}}'
    for severity in ("critical", "warning")
}

# Alerts that do not fire unless the policy enforces a mark.
ENFORCED_ONLY = {"NodeguardBudgetNearlySpent", "NodeguardCheckSuppressed"}

# The dead man's switch has no severity. node.yaml is for a site without an aggregator, and so without a mode.
SEVERITIES = {
    "agent": BY_MODE,
    "node": {"critical", "warning"},
    "aggregator": {*BY_MODE, "info", "none"},
}
RULES = [(component, rule) for component in SEVERITIES for rule in alerts(component)]

# The series by which the rules recognize a policy that only observes: agent.yaml is tested without the rules
# of the aggregator, which record it.
OBSERVES = {
    "agent": {"series": 'nodeguard:mode{mode="observe"}', "values": "1x300"},
    "aggregator": {
        "series": 'nodeguard_aggregator_enforcing{job="nodeguard-aggregator", instance="a"}',
        "values": "0x300",
    },
}

# Sections of each alert in the runbook.
SECTIONS = ("Meaning", "Look", "Do")

COMPONENTS = pytest.mark.parametrize("component", SEVERITIES)
EVERY_RULE = pytest.mark.parametrize(("component", "rule"), RULES, ids=[rule["alert"] for _, rule in RULES])


@COMPONENTS
def test_promtool_accepts_the_rules(component: str, promtool: Promtool) -> None:
    result = promtool("check", "rules", str(rules(component)))
    assert result.returncode == 0, result.stdout + result.stderr


def test_promtool_accepts_the_scrape_jobs_of_the_page(promtool: Promtool, tmp_path: Path) -> None:
    blocks = [block for block in yaml_blocks("docs/install/prometheus.md") if "scrape_configs" in block]
    names = [[job["job_name"] for job in block["scrape_configs"]] for block in blocks]
    assert names == [["nodeguard-aggregator", "nodeguard"]] * 2  # with and without Kubernetes
    settings = tmp_path / "prometheus.yml"
    # Debian's Prometheus has no discovery of Kubernetes.
    settings.write_text(yaml.safe_dump(blocks[1]))
    result = promtool("check", "config", str(settings))
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.promtool
@pytest.mark.parametrize(
    ("labels", "receiver"),
    [
        (("alertname=NodeguardWatchdog", "severity=none"), "watchdog"),
        (("alertname=NodeguardIncident", "severity=info"), "none"),
        (("alertname=NodeguardIncident", "severity=warning"), "oncall"),
        (("alertname=NodeguardFrozen", "severity=critical"), "oncall"),
    ],
)
def test_the_route_of_the_page_calls_the_engineer_only_for_faults(
    labels: tuple[str, ...], receiver: str, tmp_path: Path
) -> None:
    [block] = (block for block in yaml_blocks("docs/install/prometheus.md") if "receivers" in block)
    settings = tmp_path / "alertmanager.yml"
    settings.write_text(yaml.safe_dump(block))
    command = ["amtool", "config", "routes", "test", f"--config.file={settings}", *labels]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == f"{receiver}\n"


@COMPONENTS
def test_promtool_unit_tests_pass(component: str, promtool: Promtool) -> None:
    result = promtool("test", "rules", str(unit_tests(component)))
    assert result.returncode == 0, result.stdout + result.stderr


@COMPONENTS
def test_every_alert_is_tested_firing_and_inactive(component: str) -> None:
    tests = yaml.safe_load(unit_tests(component).read_text())["tests"]
    cases = [case for test in tests for case in test["alert_rule_test"]]
    names = {rule["alert"] for rule in alerts(component)}
    for fires in (True, False):
        assert {case["alertname"] for case in cases if bool(case["exp_alerts"]) is fires} == names


@pytest.mark.parametrize("component", ["agent", "aggregator"])
def test_in_observe_mode_no_alert_is_above_info(component: str, tmp_path: Path, promtool: Promtool) -> None:
    tests = yaml.safe_load(unit_tests(component).read_text())
    tests["rule_files"] = [str(rules(component))]
    for test in tests["tests"]:
        test["input_series"] = [
            series
            for series in test["input_series"]
            if "nodeguard_aggregator_enforcing" not in series["series"]
        ]
        test["input_series"].append(OBSERVES[component])
        for case in test["alert_rule_test"]:
            case["exp_alerts"] = [
                {**alert, "exp_labels": _observed(alert["exp_labels"])}
                for alert in case["exp_alerts"]
                if case["alertname"] not in ENFORCED_ONLY
            ]
    path = tmp_path / "tests.yaml"
    path.write_text(yaml.safe_dump(tests))
    result = promtool("test", "rules", str(path))
    assert result.returncode == 0, result.stdout + result.stderr


def _observed(labels: dict[str, str]) -> dict[str, str]:
    """Return the labels of an alert while the policy only observes. labels: while it enforces."""
    if "incident" in labels or labels["severity"] in ("none", "info"):
        return labels
    return {**labels, "severity": "info", "mode": "observe"}


@EVERY_RULE
def test_alert_has_severity_summary_and_runbook(component: str, rule: dict[str, Any]) -> None:
    is_enforced_only = rule["alert"] in ENFORCED_ONLY
    assert rule["labels"]["severity"] in ({"warning"} if is_enforced_only else SEVERITIES[component])
    assert rule["annotations"]["summary"]
    page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    assert page == f"{MAIN}/{RUNBOOK}"
    assert anchor == rule["alert"].lower()
    section = (ROOT / RUNBOOK).read_text().partition(f"\n## {rule['alert']}\n")[2].partition("\n## ")[0]
    assert [name for name in SECTIONS if f"\n**{name}.**" not in section] == []
