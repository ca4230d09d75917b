"""All alert rules, judged by promtool itself."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.alerts.rules import MAIN, RUNBOOK, Promtool, alerts, rules, told
from tests.paths import ROOT

# A dead man's switch has no severity.
SEVERITIES = {"agent": {"critical", "warning"}, "aggregator": {"critical", "warning", "none"}}

parts = pytest.mark.parametrize("part", SEVERITIES)
each = pytest.mark.parametrize(
    ("part", "rule"),
    [pytest.param(part, rule, id=rule["alert"]) for part in SEVERITIES for rule in alerts(part)],
)


@parts
def test_they_are_rules(part: str, promtool: Promtool) -> None:
    done = promtool("check", "rules", str(rules(part)))
    assert done.returncode == 0, done.stdout + done.stderr


@parts
def test_they_fire_and_stay_quiet_as_told(part: str, promtool: Promtool) -> None:
    done = promtool("test", "rules", str(told(part)))
    assert done.returncode == 0, done.stdout + done.stderr


@parts
def test_each_of_them_fires_and_stays_quiet_somewhere(part: str) -> None:
    tests = yaml.safe_load(told(part).read_text())["tests"]
    outcomes = [one for test in tests for one in test["alert_rule_test"]]
    for outcome in (True, False):
        assert {one["alertname"] for one in outcomes if bool(one["exp_alerts"]) is outcome} == {
            rule["alert"] for rule in alerts(part)
        }


@each
def test_each_has_a_severity_a_summary_and_a_runbook(part: str, rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in SEVERITIES[part]
    assert rule["annotations"]["summary"]
    page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    assert page == f"{MAIN}/{RUNBOOK}"
    assert anchor == rule["alert"].lower()
    assert f"\n## {rule['alert']}\n" in (ROOT / RUNBOOK).read_text()
