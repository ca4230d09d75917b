"""Alert rules of one part of nodeguard, what promtool says of them, and metrics that they may look at."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from tests.paths import ROOT

# Runs promtool, with arguments and standard input: the fixture `promtool`.
Promtool = Callable[..., subprocess.CompletedProcess[str]]

# The main branch of the repository: links from alerts are absolute, as they are read elsewhere.
MAIN = "https://github.com/nodeguard/nodeguard/blob/main"
RUNBOOK = "docs/runbooks/alerts.md"

# What Prometheus itself adds to each metric.
OF_PROMETHEUS = {"job", "instance"}


def rules(part: str) -> Path:
    """The rules of the agent, or of the aggregator."""
    return ROOT / "daemonset" / "alerts" / f"{part}.yaml"


def told(part: str) -> Path:
    """What promtool is to make of them."""
    return Path(__file__).parent / f"{part}.yaml"


def alerts(part: str) -> list[dict[str, Any]]:
    groups = yaml.safe_load(rules(part).read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def labels_by_metric(page: str) -> dict[str, set[str]]:
    """What a page of metrics has."""
    found: dict[str, set[str]] = {}
    for name, labels in re.findall(r"^(nodeguard_\w+)(?:\{(.*)\})? ", page, re.MULTILINE):
        found.setdefault(name, set()).update(re.findall(r'(\w+)="', labels))
    return found
