"""The dashboards are written from their source, and each query uses metrics and labels that exist."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodeguard.pipeline.verdict_metrics import INJECTED
from scripts.dashboards import DIRECTORY, dashboards
from tests.aggregator.test_report_handler import report
from tests.aggregator.test_service import CALLER
from tests.alerts.pages import agent_page, aggregator_page, new_aggregator
from tests.alerts.rules import TARGET_LABELS, Promtool, labels_by_metric

# Metrics of a process, which prometheus-client serves.
PROCESS = {"process_resident_memory_bytes", "process_cpu_seconds_total"}

FUNCTIONS = {
    "max", "min", "sum", "count", "topk", "by", "and", "on", "or", "vector", "time", "rate", "increase",
    "histogram_quantile", "job", "instance", "label_values",
}  # fmt: skip


def queries() -> Iterator[tuple[str, str]]:
    """Yield title and expression of each panel, with values of the variables."""
    for name, content in dashboards():
        for panel in json.loads(content)["panels"]:
            for target in panel["targets"]:
                yield f"{name}: {panel['title']}", re.sub(r"\$\w+", "x", target["expr"])


def unknown_names(query: str, metrics: dict[str, set[str]]) -> set[str]:
    """Return the metrics and labels of a query that do not exist."""
    labels = TARGET_LABELS | {"le", *(label for served in metrics.values() for label in served)}
    words = set(re.findall(r"[A-Za-z_]\w*", re.sub(r'"[^"]*"|\[\w+\]', "", query)))
    return words - FUNCTIONS - labels - metrics.keys() - PROCESS


def test_the_files_are_written_from_the_source() -> None:
    assert {path.name: path.read_text() for path in DIRECTORY.glob("*.json")} == dict(dashboards())


async def test_each_query_uses_metrics_and_labels_that_are_served() -> None:
    metrics = labels_by_metric(agent_page()) | labels_by_metric(await aggregator_page())
    for title, query in queries():
        assert unknown_names(query, metrics) == set(), title
        for name, matchers in re.findall(r"(nodeguard_\w+)\{(.*?)\}", query):
            assert set(re.findall(r"(\w+)[=!]", matchers)) <= metrics[name] | TARGET_LABELS, title


def test_a_metric_that_does_not_exist_is_detected() -> None:
    assert unknown_names('max(nodeguard_nodes{job="x", colour="red"})', {"nodeguard_node": {"health"}}) == {
        "nodeguard_nodes",
        "colour",
    }


def test_prometheus_accepts_each_query(tmp_path: Path, promtool: Promtool) -> None:
    rules = [{"record": f"query_{number}", "expr": query} for number, (_, query) in enumerate(queries())]
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboards", "rules": rules}]}))
    result = promtool("check", "rules", str(file))
    assert result.returncode == 0, result.stdout + result.stderr


def numbers() -> Iterator[str]:
    """Yield an expression for each panel of one number: of all its queries, for the node x."""
    for _, content in dashboards():
        for panel in json.loads(content)["panels"]:
            if panel["type"] == "stat":
                queries = (f"({target['expr'].replace('$instance', 'x')})" for target in panel["targets"])
                yield " or ".join(queries)


def constant_series(page: str, job: str, instance: str) -> Iterator[dict[str, str]]:
    """Yield the series of promtool's unit tests for a page that does not change."""
    for name, labels, value in re.findall(r"^(\w+)(?:\{(.*)\})? (\S+)$", page, re.MULTILINE):
        target = f'job="{job}",instance="{instance}"'
        series = f"{name}{{{target}{',' if labels else ''}{labels}}}"
        yield {"series": series, "values": f"{float(value):f}x10"}


async def test_each_panel_of_one_number_has_one_in_a_new_fleet(promtool: Promtool, tmp_path: Path) -> None:
    scene, metrics, *_ = await new_aggregator()
    scene.handler(CALLER, report())
    await scene.turn()
    page = metrics.page("").body
    leader = page if isinstance(page, str) else page.decode()
    standby = leader.replace("_active 1.0", "_active 0.0")
    assert standby != leader
    case: dict[str, Any] = {
        "interval": "1m",
        "input_series": [
            *constant_series(leader, "nodeguard-aggregator", "a"),
            *constant_series(standby, "nodeguard-aggregator", "b"),
            *constant_series(agent_page(), "nodeguard", "x"),
        ],
        "promql_expr_test": [
            {"expr": f"count({query})", "eval_time": "5m", "exp_samples": [{"labels": "{}", "value": 1}]}
            for query in numbers()
        ],
    }
    file = tmp_path / "tests.json"
    file.write_text(json.dumps({"evaluation_interval": "1m", "tests": [case]}))
    result = promtool("test", "rules", str(file))
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(("name", "content"), list(dashboards()))
def test_panels_have_ids_positions_and_descriptions(name: str, content: str) -> None:
    dashboard = json.loads(content)
    assert dashboard["uid"] == f"nodeguard-{name.removesuffix('.json')}"
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert all(panel["description"].endswith(".") for panel in panels)
    places = [panel["gridPos"] for panel in panels]
    cells = [
        (place["x"] + x, place["y"] + y)
        for place in places
        for x in range(place["w"])
        for y in range(place["h"])
    ]
    assert len(set(cells)) == len(cells), "two panels overlap"
    assert max(x for x, _ in cells) < 24


async def test_no_panel_shows_an_injected_fault_as_a_real_one() -> None:
    metrics = labels_by_metric(agent_page()) | labels_by_metric(await aggregator_page())
    apart = {name for name, labels in metrics.items() if INJECTED in labels}
    shown = [(title, query) for title, query in queries() if apart & set(re.findall(r"nodeguard_\w+", query))]
    assert len(shown) >= 10
    for title, query in shown:
        grouped = re.search(rf"by \([^)]*\b{INJECTED}\b[^)]*\)", query)
        assert grouped or re.search(rf'{INJECTED}="(true)?"', query), title
