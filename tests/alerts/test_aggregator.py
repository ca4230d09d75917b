"""Alert rules of the aggregator use metrics that it serves, and its page follows Prometheus' conventions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tests.alerts.pages import aggregator_page, aggregator_response, busy_aggregator
from tests.alerts.rules import TARGET_LABELS, Promtool, alerts, labels_by_metric


async def test_rules_use_existing_metrics_and_labels() -> None:
    metrics = labels_by_metric(await aggregator_page())
    for rule in alerts("aggregator"):
        for name, matchers in re.findall(r"(nodeguard_\w+)\{(.*?)\}", rule["expr"]):
            assert set(re.findall(r"(\w+)=", matchers)) <= metrics[name] | TARGET_LABELS
        assert set(re.findall(r"nodeguard_\w+", rule["expr"])) <= metrics.keys()


ACCEPTED = {("requests", f'code="200",kind="{kind}"') for kind in ("heartbeat", "report")}


async def test_each_series_of_a_counter_with_labels_is_0_when_it_is_first_exported() -> None:
    body = (await busy_aggregator()).metrics.page("").body
    page = body if isinstance(body, str) else body.decode()
    series = re.findall(r"^nodeguard_aggregator_(\w+)_total\{(.*)\} (\S+)$", page, re.MULTILINE)
    # Accepted messages come at once after a start: as 0 for two minutes they would look like an outage.
    counted = {name for name, labels, value in series if float(value) and (name, labels) not in ACCEPTED}
    assert {("requests", 'code="200",kind="heartbeat"', "0.0")} < {*series}
    # The counter of faults delays its series itself, and the scene sets these two beside it.
    assert (counted, len(series) > 10) == ({"faults", "false_alarms"}, True)


async def test_page_follows_prometheus_conventions(promtool: Promtool) -> None:
    page = await aggregator_page()
    result = promtool("check", "metrics", stdin=page)
    assert (result.returncode, result.stdout + result.stderr) == (0, "")
    for line in (
        "# TYPE nodeguard_aggregator_requests_total counter",
        'nodeguard_aggregator_requests_total{code="401",kind="unknown"} 2.0',
        'nodeguard_aggregator_connection_errors_total{reason="timeout"} 1.0',
        'nodeguard_aggregator_plan_duration_seconds_bucket{le="10.0"} 4.0',
        'nodeguard_aggregator_message_duration_seconds_count{kind="report"} 1.0',
        'nodeguard_aggregator_marked_nodes{mark="quarantine"} 2.0',
        'nodeguard_aggregator_node_mark{fault_class="gpu-bus",mark="quarantine",node="node-1"} 1.0',
        'nodeguard_aggregator_node_mark{fault_class="gpu-bus",injected="true",mark="quarantine",node="node-3"} 1.0',
        'nodeguard_aggregator_marks_set_total{check="gpu-lost",mark="quarantine"} 1.0',
        'nodeguard_aggregator_marks_set_total{check="gpu-ecc",injected="true",mark="quarantine"} 1.0',
        'nodeguard_aggregator_incidents{injected="true",state="marked"} 1.0',
        'nodeguard_aggregator_mark_requests_withheld_total{mark="quarantine",reason="pause"} 1.0',
        'nodeguard_aggregator_schedulable_fatal_node{node="node-2",reason="pause"} 1.0',
        'nodeguard_aggregator_findings_total{check="gpu-lost",health="fatal"} 2.0',
        'nodeguard_aggregator_faults_total{action="reset-gpu",check="gpu-lost",domain="",part="gpu"} 2.0',
        'nodeguard_aggregator_repair_duration_seconds_bucket{action="reset-gpu",check="gpu-lost",domain="",le="14400.0",part="gpu"} 1.0',
        'nodeguard_aggregator_gpu_out_seconds_total{action="reset-gpu",check="gpu-lost",domain="",part="gpu",work="all"} 60.0',
        'nodeguard_aggregator_false_alarms_total{check="gpu-lost"} 1.0',
        "nodeguard_aggregator_gpu_seconds_total 0.0",
        "nodeguard_aggregator_observed_node_seconds_total 0.0",
        'nodeguard_aggregator_nodes{health="unknown"} 0.0',
        'nodeguard_aggregator_incidents{state="marked"} 1.0',
        'nodeguard_aggregator_budget_used_ratio{budget="fleet"} 0.6666666666666666',
        'nodeguard_aggregator_budget_limit_nodes{budget="fleet"} 3.0',
        'nodeguard_aggregator_degraded_domains{state="marked",topology="rack"} 0.0',
        'nodeguard_aggregator_suppressed_checks{check="gpu-lost"} 1.0',
        "nodeguard_aggregator_repeat_offenders 0.0",
        'nodeguard_aggregator_drains{state="running"} 0.0',
        "nodeguard_aggregator_drained_pods_total 2.0",
        'nodeguard_aggregator_drain_failed{node="node-1"} 1.0',
        'nodeguard_aggregator_refused_messages_total{reason="other-boot"} 1.0',
        "nodeguard_aggregator_refused_nodes 1.0",
        "nodeguard_aggregator_agent_connections_limit 768.0",
        'nodeguard_aggregator_certificate_expiry_timestamp_seconds{certificate="serving"} 1.0006058e+09',
        'nodeguard_aggregator_certificate_expiry_timestamp_seconds{certificate="authority"} 1.315361e+09',
        "nodeguard_aggregator_incidents_omitted_total 0.0",
        'nodeguard_aggregator_topology_domains{topology="rack"} 1.0',
        'nodeguard_aggregator_topology_unplaced_nodes{topology="rack"} 2.0',
    ):
        assert line in page.splitlines()
    assert page.count("nodeguard_aggregator_drain_failed{") == 1
    names = set(re.findall(r"^# TYPE (\w+)", page, re.MULTILINE))
    assert {name for name in names if not name.startswith("nodeguard_aggregator_")} <= {
        "process_cpu_seconds_total", "process_max_fds", "process_open_fds", "process_resident_memory_bytes",
        "process_start_time_seconds", "process_virtual_memory_bytes",
    }  # fmt: skip


async def test_open_metrics_are_served_on_request() -> None:
    response = await aggregator_response("application/openmetrics-text; version=1.0.0")
    assert response.content_type.startswith("application/openmetrics-text")
    text = response.body if isinstance(response.body, str) else response.body.decode()
    parse: Callable[[str], Iterable[Metric]] = text_string_to_metric_families
    assert "nodeguard_aggregator_plans" in {family.name for family in parse(text)}
