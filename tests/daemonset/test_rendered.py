"""The plain manifests are those that Helm renders from the chart."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import yaml

from nodeguard import __version__
from scripts.manifests.rendering import CHART, MANIFESTS, check_names, copies, rendered, values_schema
from tests.daemonset.manifests import DAEMONSET

REMEDY = "run `make manifests`"


def test_every_manifest_is_rendered() -> None:
    plain = {path.name for path in DAEMONSET.glob("*.yaml")} - {"kustomization.yaml"}
    assert {name for name in MANIFESTS.values() if "/" not in name} == plain


@pytest.mark.usefixtures("helm")
def test_manifests_are_current() -> None:
    stale = [name for name, text in rendered().items() if (DAEMONSET / name).read_text() != text]
    assert stale == [], REMEDY


def test_alert_rules_are_those_of_the_chart() -> None:
    assert {f"alerts/{path.name}" for path in (DAEMONSET / "alerts").iterdir()} == set(copies())
    stale = [name for name, text in copies().items() if (DAEMONSET / name).read_text() != text]
    assert stale == [], f"change daemonset/chart/alerts, then {REMEDY}"


def test_the_schema_of_the_values_has_the_current_policy() -> None:
    assert (CHART / "values.schema.json").read_text() == values_schema(), REMEDY


def test_each_pattern_of_the_values_has_an_error_for_a_person() -> None:
    def unexplained(schema: object) -> Iterator[object]:
        match schema:
            case {"if": {"pattern": _}, "else": {"const": _}}:
                return
            case {"pattern": str(pattern)}:
                yield pattern
            case dict():
                for item in schema.values():
                    yield from unexplained(item)
            case list():
                for item in schema:
                    yield from unexplained(item)

    assert list(unexplained(json.loads(values_schema()))) == []


def test_the_chart_lists_the_checks_of_the_catalogue() -> None:
    assert (CHART / "checks.txt").read_text() == check_names(), REMEDY


def test_the_chart_has_the_version_of_nodeguard() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)
