"""A rehearsal on a real control plane: from the command on a node to the taint, and its release."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.controlplane.cluster import Cluster
from tests.controlplane.objects import clear_cluster
from tests.e2e import scene
from tests.e2e.fleet import Fleet
from tests.e2e.scene import ENFORCED, running_fleet
from tests.waiting import PATIENCE

GPU = f"gpu/{scene.GPUS[0]}"
LOST = ("gpu-lost", "--target", GPU)


@pytest.fixture(scope="module")
def fleet(shared_cluster: Cluster) -> Iterator[Fleet]:
    clear_cluster(shared_cluster)
    with running_fleet(shared_cluster, ENFORCED, "rehearsed", "other") as running:
        yield running


def inject(fleet: Fleet, *arguments: str) -> tuple[int, str]:
    """Run nodeguard inject on a node; returns its exit code and its output."""
    socket = str(fleet.agents["rehearsed"].socket)
    command = [sys.executable, "-m", "nodeguard.cli.main", "inject", *arguments, "--socket", socket]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    return done.returncode, done.stdout + done.stderr


def test_a_rehearsal_marks_and_releases_a_node_where_the_policy_allows_it(fleet: Fleet) -> None:
    cluster, [aggregator] = fleet.cluster, fleet.aggregators
    agent = fleet.agents["rehearsed"]

    code, output = inject(fleet, *LOST)
    assert (code, "the policy allows no injected faults" in output) == (3, True)
    fleet.policy.write_text(f"{ENFORCED}injection: {{allowed: true, checks: [gpu-lost]}}\n")
    agent.until(lambda: inject(fleet, *LOST, "--dry-run")[0] == 0)
    assert scene.taints(cluster, "rehearsed") == []

    code, output = inject(fleet, *LOST, "--for", "1h")
    assert (code, output.startswith("injected gpu-lost on GPU 0000:1b:00 for 1 h, until 2")) == (0, True)
    agent.until(lambda: scene.is_marked(cluster, "rehearsed"))
    aggregator.until(lambda: scene.incident_state(cluster, "rehearsed") == "Marked")
    [incident] = scene.incidents(cluster, "rehearsed")
    assert "-injected-" in incident["metadata"]["name"]
    assert incident["status"]["injected"] is True
    assert incident["status"]["message"].startswith("injected: GPU 0000:1b:00 is lost")
    [event] = aggregator.until(lambda: scene.events(cluster, "rehearsed", "NodeguardMarked"))
    assert event.startswith("gpu-lost on GPU 0 (0000:1b:00, serial 1650522100000, module 1): injected: ")
    assert incident["status"]["hardware"]["serial"] == "1650522100000"
    condition = aggregator.until(lambda: scene.condition(cluster, "rehearsed"))
    assert condition["message"].startswith("injected: GPU 0000:1b:00 is lost")
    record = json.loads(
        scene.get_node(cluster, "rehearsed")["metadata"]["annotations"]["nodeguard.dev/state"]
    )
    assert [cause["injected"] for cause in record["causes"]] == [True]

    [fault] = aggregator.query("/v1/status")["injected_faults"]
    assert (fault["node"], fault["by"], fault["refusal"]) == ("rehearsed", "uid 0", "")
    page = aggregator.get("/metrics")
    [series] = [line for line in page.splitlines() if line.startswith("nodeguard_aggregator_incident{")]
    assert 'injected="true"' in series
    assert "nodeguard_aggregator_findings_total{" not in page
    assert aggregator.metric('nodeguard_aggregator_nodes{health="ok"}') == 2

    assert inject(fleet, "--clear")[0] == 0
    aggregator.until(lambda: scene.incident_state(cluster, "rehearsed") == "Resolved")
    agent.until(lambda: scene.is_unmarked(cluster, "rehearsed"))
    aggregator.until(lambda: scene.condition(cluster, "rehearsed")["status"] == "True")
    assert aggregator.query("/v1/status")["injected_faults"] == []


def test_a_fault_that_the_policy_does_not_allow_any_more_marks_nothing(fleet: Fleet) -> None:
    cluster, [aggregator] = fleet.cluster, fleet.aggregators
    agent = fleet.agents["rehearsed"]
    fleet.policy.write_text(f"{ENFORCED}injection: {{allowed: true}}\n")
    agent.until(lambda: inject(fleet, *LOST, "--dry-run")[0] == 0)
    assert inject(fleet, *LOST)[0] == 0
    agent.until(lambda: scene.is_marked(cluster, "rehearsed"))

    fleet.policy.write_text(ENFORCED)
    agent.until(lambda: scene.is_unmarked(cluster, "rehearsed"))
    [fault] = aggregator.query("/v1/status")["injected_faults"]
    assert fault["refusal"] == "the policy allows no injected faults: injection.allowed is false"

    # The injected fault ends with the process of the agent.
    agent.kill()
    agent.start()
    aggregator.until(lambda: aggregator.query("/v1/status")["injected_faults"] == [])
