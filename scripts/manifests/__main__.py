"""Writes the plain manifests and the chart's generated schema: `python -m scripts.manifests`."""

from scripts.manifests.rendering import CHART, DAEMONSET, check_names, copies, rendered, values_schema

(CHART / "values.schema.json").write_text(values_schema(), "utf-8")
(CHART / "checks.txt").write_text(check_names(), "utf-8")
for name, text in {**copies(), **rendered()}.items():
    (DAEMONSET / name).write_text(text, "utf-8")
