"""Grafana dashboards: scripts/dashboards.yaml as JSON in daemonset/chart/dashboards."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "scripts" / "dashboards.yaml"
DIRECTORY = ROOT / "daemonset" / "chart" / "dashboards"

# The scrape jobs have the same names as in the alert rules.
_NAMES = {
    "ZERO": "0 * sum(ACTIVE)",
    "ACTIVE": 'nodeguard_aggregator_active{job="nodeguard-aggregator"} == 1',
    "AGGREGATOR": 'job="nodeguard-aggregator"',
    "AGENT": 'job="nodeguard"',
}

_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}

# Version of Grafana's dashboard schema: that of Grafana 11.
_SCHEMA_VERSION = 39

# Columns of Grafana's grid.
_COLUMNS = 24


def dashboards() -> Iterator[tuple[str, str]]:
    """Yield the file name and the JSON of each dashboard, for Grafana's import and for its sidecar."""
    for source in yaml.safe_load(SOURCE.read_text()):
        yield f"{source['name']}.json", json.dumps(_dashboard(source), indent=2) + "\n"


def expression(query: str) -> str:
    """Return a query with the names of the scrape jobs."""
    for name, text in _NAMES.items():
        query = query.replace(name, text)
    return query


def _dashboard(source: Mapping[str, Any]) -> dict[str, Any]:
    variables = (_variable(variable) for variable in source.get("variables", ()))
    return {
        "uid": f"nodeguard-{source['name']}",
        "title": source["title"],
        "description": source["about"],
        "tags": ["nodeguard"],
        "schemaVersion": _SCHEMA_VERSION,
        "editable": False,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"},
                *variables,
            ]
        },
        "panels": list(_placed(source["panels"])),
    }


def _variable(source: Mapping[str, str]) -> dict[str, Any]:
    query = expression(source["query"])
    return {
        "name": source["name"], "label": source["label"], "type": "query", "query": query,
        "definition": query, "datasource": _DATASOURCE, "refresh": 2, "sort": 1,
    }  # fmt: skip


def _placed(sources: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the panels with their positions: from left to right, then down."""
    x = y = row_height = 0
    for number, source in enumerate(sources, 1):
        width, height = source["size"]
        if x + width > _COLUMNS:
            x, y, row_height = 0, y + row_height, 0
        row_height = max(row_height, height)
        yield _panel(source, number, {"x": x, "y": y, "w": width, "h": height})
        x += width


def _panel(source: Mapping[str, Any], number: int, position: Mapping[str, int]) -> dict[str, Any]:
    kind = source["kind"]
    queries = source.get("queries") or {"__auto": source["query"]}
    panel: dict[str, Any] = {
        "id": number,
        "type": kind,
        "title": source["title"],
        "description": source["about"],
        "datasource": _DATASOURCE,
        "gridPos": position,
        "targets": [
            {
                "refId": chr(ord("A") + place), "datasource": _DATASOURCE, "expr": expression(query),
                "legendFormat": legend, "instant": kind != "timeseries",
                "format": "table" if kind == "table" else "time_series",
            }
            for place, (legend, query) in enumerate(queries.items())
        ],
        "fieldConfig": {"defaults": _defaults(source), "overrides": list(_overrides(source))},
    }  # fmt: skip
    if kind == "table":
        excluded = {"Time": True, "Value": True}
        order = {label: place for place, label in enumerate(_labels(source["query"]))}
        options = {"excludeByName": excluded, "indexByName": order}
        panel["transformations"] = [{"id": "organize", "options": options}]
    if kind == "stat":
        text = "name" if "queries" in source else "auto"
        panel["options"] = {"textMode": text, "reduceOptions": {"calcs": ["lastNotNull"]}}
    return panel


def _labels(query: str) -> Sequence[str]:
    """Return the labels of `by` in a query of a table."""
    return query.partition("by (")[2].partition(")")[0].split(", ")


def _defaults(source: Mapping[str, Any]) -> dict[str, Any]:
    thresholds = source.get("thresholds", [[None, "green"]])
    steps = [{"color": colour, "value": value} for value, colour in thresholds]
    defaults: dict[str, Any] = {
        "unit": source.get("unit", "short"),
        "thresholds": {"mode": "absolute", "steps": steps},
    }
    if source["kind"] == "timeseries":
        stacking = {"mode": "normal" if source.get("stacked") else "none"}
        defaults |= {"min": 0, "custom": {"fillOpacity": 10, "stacking": stacking}}
    return defaults


def _overrides(source: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the colours of series by name."""
    for name, colour in source.get("colours", {}).items():
        yield {
            "matcher": {"id": "byName", "options": name},
            "properties": [{"id": "color", "value": {"mode": "fixed", "fixedColor": colour}}],
        }


def main() -> None:
    """Write the dashboards."""
    DIRECTORY.mkdir(exist_ok=True)
    for name, content in dashboards():
        (DIRECTORY / name).write_text(content)


if __name__ == "__main__":
    main()
