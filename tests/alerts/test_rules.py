"""Alert rules: promtool accepts them, their unit tests pass, and the runbook describes each."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.alerts.rules import MAIN, RUNBOOK, Promtool, alerts, rules, unit_tests
from tests.paths import ROOT

# No engineer is paged for an incident of which the mark is not enforced.
BY_MODE = '{{ if eq $labels.mode "observe" }}info{{ else }}warning{{ end }}'

# The dead man's switch has no severity.
SEVERITIES = {
    "agent": {"warning"},
    "node": {"critical", "warning"},
    "aggregator": {"critical", "warning", "info", "none", BY_MODE},
}
RULES = [(component, rule) for component in SEVERITIES for rule in alerts(component)]

# Sections of each alert in the runbook.
SECTIONS = ("Meaning", "Impact", "Diagnosis", "Mitigation")

COMPONENTS = pytest.mark.parametrize("component", SEVERITIES)
EVERY_RULE = pytest.mark.parametrize(("component", "rule"), RULES, ids=[rule["alert"] for _, rule in RULES])


@COMPONENTS
def test_promtool_accepts_the_rules(component: str, promtool: Promtool) -> None:
    result = promtool("check", "rules", str(rules(component)))
    assert result.returncode == 0, result.stdout + result.stderr


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


@EVERY_RULE
def test_alert_has_severity_summary_and_runbook(component: str, rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in SEVERITIES[component]
    assert rule["annotations"]["summary"]
    page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    assert page == f"{MAIN}/{RUNBOOK}"
    assert anchor == rule["alert"].lower()
    section = (ROOT / RUNBOOK).read_text().partition(f"\n## {rule['alert']}\n")[2].partition("\n## ")[0]
    assert [name for name in SECTIONS if f"\n**{name}.**" not in section] == []
