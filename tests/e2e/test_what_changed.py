"""What changed, as an operator asks for it: a fault, its mark, decisions, a policy, on a real API server."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from tests.controlplane.cluster import Cluster
from tests.e2e import scene
from tests.e2e.fleet import Aggregator
from tests.e2e.scene import running_fleet

THEIRS = {"key": "nodeguard.dev/quarantine", "value": "burn-in", "effect": "NoSchedule"}


def run(aggregator: Aggregator, *arguments: str) -> str:
    """Run a command at the aggregator's socket, and return its output."""
    return run_here(*arguments, "--socket", str(aggregator.socket))


def run_here(*arguments: str) -> str:
    """Run a command, and return its output."""
    command = [sys.executable, "-m", "nodeguard.cli.main", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def changes(aggregator: Aggregator, *arguments: str) -> list[tuple[str, str]]:
    """Return what happened and to which node, oldest first."""
    view: Any = json.loads(run(aggregator, "history", *arguments, "-o", "json"))
    return [(entry["change"], entry["node"]) for entry in view["entries"]]


def test_an_operator_reads_what_changed_and_who_did_it(controlplane: Cluster) -> None:
    with running_fleet(controlplane, scene.ENFORCED, "faulty", "burn-in") as fleet:
        [aggregator] = fleet.aggregators
        agent = fleet.agents["faulty"]
        controlplane.api.patch("/api/v1/nodes/burn-in", {"spec": {"taints": [THEIRS]}})
        # A report has the faults that began after its history.
        aggregator.until(lambda: aggregator.metric("nodeguard_aggregator_history_transitions_total") > 0)
        scene.inject_gpu_fault(agent)
        agent.until(lambda: scene.is_marked(controlplane, "faulty"))
        # The first line says why no work is scheduled to a node on which all checks passed.
        about = "burn-in: tainted, but not by nodeguard (nodeguard.dev/quarantine=burn-in); all checks passed"
        aggregator.until(lambda: about in run(aggregator, "describe", "node", "burn-in"))
        run(aggregator, "pause", "--reason", "a driver rollout", "--by", "ada")
        # The history reads operators' decisions with the next plan.
        aggregator.until(lambda: ("paused", "") in changes(aggregator))
        run(aggregator, "resume", "--by", "bob")
        aggregator.until(lambda: ("resumed", "") in changes(aggregator))
        fleet.policy.write_text(scene.ENFORCED.replace("max: 1s", "max: 2s"))
        aggregator.until(lambda: ("policy", "") in changes(aggregator))
        scene.log_driver_load(agent)
        agent.until(lambda: scene.is_unmarked(controlplane, "faulty"))
        aggregator.until(lambda: ("released", "faulty") in changes(aggregator, "faulty"))
        aggregator.until(lambda: ("resolved", "faulty") in changes(aggregator, "faulty"))
        of_node = changes(aggregator, "faulty", "--since", "1h")
        # The record of an incident follows the observed mark, within a second or the next one.
        assert sorted(of_node[:2]) == [("marked", "faulty"), ("opened", "faulty")]
        # Later an operator finds that the sensor was wrong.
        words = ("incidents", "clear", "faulty", "--false-alarm", "--reason", "a bad sensor", "--by", "eve")
        assert "is recorded as a false alarm" in run(aggregator, *words)
        [incident] = scene.incidents(controlplane, "faulty")
        statement = incident["spec"]["falseAlarm"]
        assert (statement["by"], statement["reason"]) == ("eve", "a bad sensor")
        log = controlplane.processes.log(aggregator.name).read_text()
        assert "incident recorded as a false alarm" in log
        aggregator.until(lambda: ("false-alarm", "") in changes(aggregator))
        report = json.loads(run_here("report", str(aggregator.directory), "-o", "json"))
        assert (report["total"]["faults"], report["total"]["false_alarms"]) == (0, 1)
        a_false_alarm_is_withdrawn(aggregator)
        text = " ".join(run(aggregator, "history").split())
        assert "paused by ada at 20" in text
        assert ": a driver rollout" in text
        assert "resumed by bob at 20" in text
        assert "soak.max: 1.0 → 2.0" in text
        assert "faulty: quarantine: " in text
        run(aggregator, "unmark", "faulty", "--reason", "a false alarm", "--by", "eve")
        aggregator.until(lambda: ("hold", "faulty") in changes(aggregator, "faulty"))
        assert "hold: unmarked by eve at 20" in " ".join(run(aggregator, "history", "faulty").split())
        # The emergency stop leaves the taint that nodeguard did not set.
        stopped = run(aggregator, "unmark", "--all", "--yes", "--by", "ada")
        assert "taints under nodeguard.dev/ that nodeguard did not set stay on burn-in" in stopped
        aggregator.until(lambda: aggregator.metric("nodeguard_aggregator_paused") == 1)
        aggregator.until(lambda: not scene.condition(controlplane, "burn-in"))
        assert scene.taints(controlplane, "burn-in") == [THEIRS]


def a_false_alarm_is_withdrawn(aggregator: Aggregator) -> None:
    """The report counts the fault again."""
    words = ("incidents", "withdraw", "faulty", "--reason", "a real fault", "--by", "ann")
    assert "is no longer recorded as a false alarm" in run(aggregator, *words)
    aggregator.until(lambda: changes(aggregator).count(("false-alarm", "")) == 2)
    assert "withdrawn by ann at 20" in run(aggregator, "describe", "incident", "faulty")
    report = json.loads(run_here("report", str(aggregator.directory), "-o", "json"))
    assert (report["total"]["faults"], report["total"]["false_alarms"]) == (1, 0)
