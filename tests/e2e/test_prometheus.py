"""A real agent, scraped by a real Prometheus with the shipped alert rules."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest
import yaml

from fixtures.bundles import bundle_path
from tests.alerts.rules import Promtool
from tests.e2e.processes import (
    command_path,
    copy_bundle,
    get_page,
    query_prometheus,
    running,
    running_agent,
    until,
)
from tests.ports import free_address

RULES = [Path(__file__).parents[2] / "daemonset" / "alerts" / name for name in ("agent.yaml", "node.yaml")]
FAULT = "3,4711,1000010000000,-;NVRM: Xid (PCI:0000:1b:00): 79, pid=1, name=x, GPU has fallen off the bus.\n"

# Maximum number of series of a healthy node.
MAX_SERIES = 40


class Scene(NamedTuple):
    """Addresses of a Prometheus and of its targets: the agent of this machine, and one of a bundle."""

    prometheus: str
    here: str
    healthy: str
    bundle: Path
    log: Path

    def query(self, expression: str) -> dict[str, float]:
        """Return the values of an expression by instance."""
        data = query_prometheus(self.prometheus, f"query?query={quote(expression)}")
        rows = data["result"] if data else []
        return {row["metric"]["instance"]: float(row["value"][1]) for row in rows}


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory, promtool: Promtool) -> Iterator[Scene]:
    command = command_path("prometheus")
    directory = tmp_path_factory.mktemp("prometheus")
    bundle = copy_bundle("healthy-dgx-h100", directory)
    with ExitStack() as stack:
        here = stack.enter_context(running_agent(tmp_path_factory.mktemp("here")))
        healthy = stack.enter_context(
            running_agent(tmp_path_factory.mktemp("healthy"), "--from", str(bundle))
        )
        settings: dict[str, Any] = {
            "global": {"scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "500ms"},
            "rule_files": [str(path) for path in RULES],
            "scrape_configs": [{"job_name": "nodeguard", "static_configs": [{"targets": [here, healthy]}]}],
        }
        config, listen, log = directory / "prometheus.yaml", free_address(), directory / "prometheus.log"
        config.write_text(yaml.safe_dump(settings))
        arguments = [
            f"--config.file={config}",
            f"--storage.tsdb.path={directory}",
            f"--web.listen-address={listen}",
        ]
        stack.enter_context(running(log, command, *arguments))
        scene = Scene(listen, here, healthy, bundle, log)
        until(lambda: len(scene.query("up")) == 2, log)
        yield scene


def test_both_agents_are_scraped(scene: Scene) -> None:
    both = {scene.here: 1.0, scene.healthy: 1.0}
    until(lambda: scene.query('up{job="nodeguard"}') == both, scene.log)
    # A slow scrape leaves out its samples.
    samples = until(lambda: scene.query("scrape_samples_scraped").get(scene.healthy, 0.0), scene.log)
    assert samples <= MAX_SERIES
    healthy = until(lambda: scene.query('nodeguard_node_health{health="ok"}').get(scene.healthy), scene.log)
    assert healthy == 1


def test_metrics_without_findings_pass_promtool(scene: Scene, promtool: Promtool) -> None:
    assert_passes_promtool(get_page(scene.healthy, "/metrics"), promtool)
    assert_passes_promtool(get_page(scene.here, "/metrics"), promtool)


def test_the_rules_are_loaded_and_evaluated(scene: Scene) -> None:
    names = [
        rule.get("alert") or rule["record"]
        for path in RULES
        for group in yaml.safe_load(path.read_text())["groups"]
        for rule in group["rules"]
    ]

    def rules() -> list[dict[str, Any]]:
        groups = query_prometheus(scene.prometheus, "rules")["groups"]
        loaded = [rule for group in groups for rule in group["rules"]]
        return [] if any(rule["health"] == "unknown" for rule in loaded) else loaded

    loaded = until(rules, scene.log)
    assert [rule["name"] for rule in loaded] == names
    assert {rule["health"] for rule in loaded} == {"ok"}


def test_a_new_fault_raises_the_alert(scene: Scene) -> None:
    def alerts() -> list[dict[str, Any]]:
        return [
            alert
            for alert in query_prometheus(scene.prometheus, "alerts")["alerts"]
            if (alert["labels"]["alertname"], alert["labels"].get("instance"))
            == ("NodeguardNodeFatal", scene.healthy)
        ]

    assert not alerts()
    with (scene.bundle / "kmsg").open("a") as log:
        log.write(FAULT)
    # It fires after a minute; tests/alerts tests that with promtool.
    [alert] = until(alerts, scene.log)
    assert alert["state"] in {"pending", "firing"}
    assert "gpu/0000:1b:00 has gpu-lost, action reboot-node" in alert["annotations"]["summary"]
    # The new series begins at 0: `increase()` counts its first Xid.
    until(lambda: scene.query('nodeguard_xid_events_total{xid="79"}') == {scene.healthy: 0.0}, scene.log)


@pytest.mark.parametrize("name", ["gpu-off-bus", "nic-troubles", "driver-stalled"])
def test_metrics_with_findings_pass_promtool(name: str, tmp_path: Path, promtool: Promtool) -> None:
    with running_agent(tmp_path, "--from", str(bundle_path(name)), "--speed", "100") as listen:
        log = tmp_path / "agent.log"
        until(lambda: "\nnodeguard_finding{" in get_page(listen, "/metrics"), log)
        assert_passes_promtool(get_page(listen, "/metrics"), promtool)


def assert_passes_promtool(metrics: str, promtool: Promtool) -> None:
    assert "nodeguard_node_health{" in metrics
    done = promtool("check", "metrics", stdin=metrics)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
