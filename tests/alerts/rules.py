"""The alert rules of agent and aggregator, promtool, and the labels of a metrics page."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from tests.paths import ROOT

# Runs promtool with arguments and standard input: the fixture `promtool`.
Promtool = Callable[..., subprocess.CompletedProcess[str]]

# The main branch of the repository: links of alerts are absolute, because Alertmanager shows them.
MAIN = "https://github.com/nodeguard/nodeguard/blob/main"
RUNBOOK = "docs/runbooks/alerts.md"

# Labels that Prometheus adds to every series.
TARGET_LABELS = {"job", "instance"}


def rules(component: str) -> Path:
    """The file with the rules of the agent or of the aggregator."""
    return ROOT / "daemonset" / "alerts" / f"{component}.yaml"


def unit_tests(component: str) -> Path:
    """The file with promtool's unit tests of these rules."""
    return Path(__file__).parent / f"{component}.yaml"


def all_rules(component: str) -> list[dict[str, Any]]:
    """These rules: alerts, and what they record."""
    groups = yaml.safe_load(rules(component).read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def alerts(component: str) -> list[dict[str, Any]]:
    """The alerts of these rules."""
    return [rule for rule in all_rules(component) if "alert" in rule]


def labels_by_metric(page: str) -> dict[str, set[str]]:
    """The labels of each metric of a page."""
    labels: dict[str, set[str]] = {}
    for name, pairs in re.findall(r"^(nodeguard_\w+)(?:\{(.*)\})? ", page, re.MULTILINE):
        labels.setdefault(name, set()).update(re.findall(r'(\w+)="', pairs))
    return labels
