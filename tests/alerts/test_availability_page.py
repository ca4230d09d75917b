"""The expressions on the page about availability are valid, and use metrics and labels that are served."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.alerts.pages import aggregator_page
from tests.alerts.rules import Promtool, labels_by_metric
from tests.paths import ROOT


async def test_each_expression_is_valid_and_of_served_metrics(promtool: Promtool, tmp_path: Path) -> None:
    page = (ROOT / "docs/tasks/report-availability.md").read_text("utf-8")
    expressions = re.findall(r"^\| [^|]+ \| `((?:sum|histogram_quantile).+)` \|$", page, re.MULTILINE)
    assert len(expressions) == 4
    rules = [
        {"record": f"figure:{number}", "expr": expression} for number, expression in enumerate(expressions)
    ]
    file = tmp_path / "rules.json"
    file.write_text(json.dumps({"groups": [{"name": "page", "rules": rules}]}))
    checked = promtool("check", "rules", str(file))
    assert "SUCCESS: 4 rules found" in checked.stdout, checked.stderr
    metrics = labels_by_metric(await aggregator_page())
    for expression in expressions:
        assert set(re.findall(r"nodeguard_\w+", expression)) <= metrics.keys()
        for name, matchers in re.findall(r"(nodeguard_\w+)\{(.*?)\}", expression):
            assert set(re.findall(r"(\w+)=", matchers)) <= metrics[name]
