"""The expressions on the page about availability are valid, and count the first event of each series."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from prometheus_client.samples import Sample

from nodeguard.aggregator.fault_metrics import fault_families
from nodeguard.aggregator.metrics import AggregatorMetrics
from nodeguard.fleet.plan import Plan
from nodeguard.model.incident import FalseAlarm, OperatorDecision
from nodeguard.model.instant import Instant
from nodeguard.pipeline.new_series import CounterSeries
from scripts.dashboards import dashboards
from tests.alerts.pages import aggregator_page
from tests.alerts.rules import Promtool, labels_by_metric
from tests.fleet.scene import Fleet, finding
from tests.paths import ROOT


def expressions_of_page() -> list[str]:
    page = (ROOT / "docs/tasks/report-availability.md").read_text("utf-8")
    return re.findall(r"^\| [^|]+ \| `((?:sum|histogram_quantile).+)` \|$", page, re.MULTILINE)


async def test_each_expression_is_valid_and_of_served_metrics(promtool: Promtool, tmp_path: Path) -> None:
    expressions = expressions_of_page()
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


class Scrapes:
    """The series of promtool's unit tests, from the availability metrics at each scrape."""

    def __init__(self, metrics: AggregatorMetrics) -> None:
        self.count = 0
        self._metrics, self._series = metrics, CounterSeries()
        self._values: dict[str, dict[int, float]] = defaultdict(dict)

    def scrape(self, now: Instant) -> None:
        for sample in self._samples(now):
            labels = ",".join(f'{name}="{value}"' for name, value in sample.labels.items())
            self._values[f"{sample.name}{{{labels}}}"][self.count] = sample.value
        self.count += 1

    def _samples(self, now: Instant) -> Iterator[Sample]:
        families = fault_families(self._metrics.faults, self._series, now)
        for family in (*families, *self._metrics.registry.collect()):
            if family.name.startswith("nodeguard_aggregator_"):
                yield from family.samples

    @property
    def series(self) -> list[dict[str, str]]:
        return [
            {"series": name, "values": " ".join(str(values.get(at, "_")) for at in range(self.count))}
            for name, values in self._values.items()
        ]


def test_the_expressions_count_the_first_event_of_each_series(promtool: Promtool, tmp_path: Path) -> None:
    fleet = Fleet(8)
    metrics = AggregatorMetrics(fleet.planner)
    scrapes, decisions = Scrapes(metrics), dict[str, OperatorDecision]()

    def pass_minutes(minutes: int, plan: Plan) -> None:
        for _ in range(minutes):
            metrics.faults.plan_made(fleet.planner, plan, lambda: decisions, fleet.now, acts=True)
            scrapes.scrape(fleet.now)
            fleet.after(60.0)
            plan = Plan()

    pass_minutes(2, fleet.carry_out())
    checks = ("gpu-lost", "port-down", "clock-offset")
    for number, check in enumerate(checks):
        fleet.report(number, finding(check))
    pass_minutes(10, fleet.carry_out())
    incidents = [
        name for number in range(3) for name in fleet.planner.tracker.recorded.by_uid[f"uid-{number}"]
    ]
    decisions.update({name: OperatorDecision(name, false_alarm=FalseAlarm("ann")) for name in incidents})
    for number in range(3):
        fleet.report(number)
    pass_minutes(10, fleet.carry_out())

    between, repair, _, false_alarms = expressions_of_page()
    faults = between.rpartition(" / ")[2]
    counted = false_alarms.partition(" * ")[0]
    alarms = [{"labels": f'{{check="{check}"}}', "value": 1} for check in checks]
    # The bucket of 10 minutes and more: the faults began a minute before their reports.
    expected = {
        faults: [{"labels": "{}", "value": 3}],
        repair: [{"labels": "{}", "value": 2100}],
        counted: alarms,
    }
    case = {
        "interval": "1m",
        "input_series": scrapes.series,
        "promql_expr_test": [
            {"expr": expr, "eval_time": f"{scrapes.count - 1}m", "exp_samples": samples}
            for expr, samples in expected.items()
        ],
    }
    file = tmp_path / "tests.json"
    file.write_text(json.dumps({"evaluation_interval": "1m", "tests": [case]}))
    tested = promtool("test", "rules", str(file))
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_without_a_fault_the_time_between_faults_is_not_infinite(promtool: Promtool, tmp_path: Path) -> None:
    panels = [
        target["expr"]
        for _, content in dashboards()
        for panel in json.loads(content)["panels"]
        if panel["title"] == "Time between faults"
        for target in panel["targets"]
    ]
    between, *_ = expressions_of_page()
    job = 'job="nodeguard-aggregator"'
    case = {
        "interval": "1m",
        "input_series": [
            {"series": f"nodeguard_aggregator_observed_node_seconds_total{{{job}}}", "values": "0+60x10"},
            {"series": f'nodeguard_aggregator_faults_total{{{job},check="gpu-lost"}}', "values": "1x10"},
        ],
        "promql_expr_test": [
            {"expr": expr, "eval_time": "10m", "exp_samples": []} for expr in (between, *panels)
        ],
    }
    file = tmp_path / "tests.json"
    file.write_text(json.dumps({"evaluation_interval": "1m", "tests": [case]}))
    tested = promtool("test", "rules", str(file))
    assert (len(panels), tested.returncode) == (1, 0), tested.stdout + tested.stderr
