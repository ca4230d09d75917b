"""Jobs on a real control plane: the pods of nodes that vote name the job, and its bad start is no switch's fault."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from nodeguard.model.finding import Action, Health
from nodeguard.model.instant import rfc3339
from nodeguard.wire.report import ReportedEvidence, ReportedFinding
from tests.controlplane.cluster import Cluster
from tests.controlplane.objects import node, pod
from tests.e2e.bulk_nodes import wait_until_schedulable
from tests.e2e.fleet import Aggregator, deployed_fleet
from tests.e2e.scene import INCIDENTS, taints
from tests.e2e.swarm import Swarm, fatal_finding, faulty_report, healthy_report, reporting_swarm

# Leaf switches with some nodes each, all below one spine.
LEAF, SPINE = "fabric.topograph.run/tier-0", "fabric.topograph.run/tier-1"
NODES = {f"leaf-{leaf}-node-{number}": f"leaf-{leaf}" for leaf in range(3) for number in range(6)}
JOBSET = {"jobset.sigs.k8s.io/jobset-name": "llama"}

# A domain is degraded long before the test ends; the settling time is enough to read the pods.
POLICY = f"""
defaultMode: enforce
gracePeriod: {{quarantine: 1s, suspect: 1s, sharedHardware: 20s}}
budget: {{fleet: 100%, pool: 100%, domain: 100%, suspect: 100%, newDegradedDomainsPerHour: 100}}
topologies: {{fabric: [{SPINE}, {LEAF}]}}
diagnosis: {{enforce: [fabric], gracePeriod: 20s}}
"""

_HEALTHY = healthy_report(("gpu-lost", "port-link-downed"))
_LINK_LOST = ReportedFinding(
    check="port-link-downed",
    target="port/mlx5_0/1",
    health=Health.WARNING,
    action=Action.MONITOR,
    message="port mlx5_0/1 lost its link and has it again",
    evidence=(ReportedEvidence("infiniband", "port.link_downed rose by 1"),),
    topologies=("fabric",),
    family="infiniband",
)
_LOST = replace(_HEALTHY, health=Health.WARNING, findings=(_LINK_LOST,), passing=())
_BROKEN = faulty_report(_HEALTHY, fatal_finding("gpu-lost"))


@pytest.fixture
def nodes(controlplane: Cluster) -> Cluster:
    """Create the nodes."""
    for name, leaf in NODES.items():
        controlplane.api.post("/api/v1/nodes", node(name, 8, {LEAF: leaf, SPINE: "spine"}))
    wait_until_schedulable(controlplane)
    return controlplane


def run_pod(cluster: Cluster, space: str, name: str, on: str, started: float, **metadata: Any) -> None:
    """Bind a pod to a node and report its start, as a scheduler and a kubelet do. space: its namespace."""
    path = f"/api/v1/namespaces/{space}/pods"
    body = pod(name, 8)
    body["metadata"].update(metadata)
    body["spec"]["nodeName"] = on
    cluster.api.post(path, body)
    state = {"running": {"startedAt": rfc3339(started)}}
    container = {
        "name": "work",
        "image": "work",
        "imageID": "",
        "ready": True,
        "restartCount": 0,
        "state": state,
    }
    status = {"phase": "Running", "startTime": rfc3339(started), "containerStatuses": [container]}
    cluster.api.patch(f"{path}/{name}/status", {"status": status})


@contextmanager
def agents_of(cluster: Cluster) -> Iterator[tuple[Aggregator, Swarm]]:
    """Run an active aggregator, and a healthy agent for each node."""
    uids = {
        item["metadata"]["name"]: item["metadata"]["uid"]
        for item in cluster.api.get("/api/v1/nodes")["items"]
    }
    with deployed_fleet(cluster) as fleet:
        fleet.policy.write_text(POLICY)
        with reporting_swarm(fleet, uids, _HEALTHY) as (aggregator, agents):
            aggregator.until(lambda: aggregator.metric("nodeguard_aggregator_active") == 1)
            yield aggregator, agents


def incidents(cluster: Cluster) -> dict[str, Any]:
    """Return the status of each incident, by its subject."""
    items = cluster.api.get(INCIDENTS)["items"]
    return {
        item["status"]["subject"]: item["status"] for item in items if "subject" in item.get("status", {})
    }


def owned(cluster: Cluster, namespace: str) -> dict[str, Any]:
    """Return the metadata of a pod that an object controls. A Job would delete it: no kubelet runs it."""
    path, body = f"/api/v1/namespaces/{namespace}/configmaps", {"metadata": {"name": "single"}}
    uid = cluster.api.post(path, body)["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "single", "uid": uid, "controller": True}
    return {"ownerReferences": [owner]}


def test_a_gang_that_starts_badly_is_an_incident_of_its_job_and_degrades_no_switch(
    nodes: Cluster, namespace: str
) -> None:
    gang = [name for name in NODES if name.endswith(("0", "1", "2", "3"))]
    started, other = time.time() - 20.0, "leaf-2-node-5"
    for name in gang:
        run_pod(nodes, namespace, f"llama-{name}", name, started, labels=JOBSET)
    run_pod(nodes, namespace, "single-0", other, started - 9_000.0, **owned(nodes, namespace))
    job = f"{namespace}/llama"
    with agents_of(nodes) as (aggregator, agents):
        agents.set_reports({**dict.fromkeys(gang, _LOST), other: _BROKEN})
        aggregator.until(lambda: f"job/{job}" in incidents(nodes))
        bad_start = incidents(nodes)[f"job/{job}"]
        assert (bad_start["state"], bad_start["jobs"]) == ("Open", [job])
        # The diagnosis may come before the last reports.
        assert re.match(rf"job {job} started badly: \d+ nodes had trouble with a link", bad_start["message"])
        aggregator.until(lambda: incidents(nodes).get(other, {}).get("jobs") == [f"{namespace}/single"])
        reads = 'nodeguard_aggregator_job_reads_total{result="read"}'
        aggregator.until(lambda: aggregator.metric(reads) >= len(gang) + 1)
        assert aggregator.metric('nodeguard_aggregator_job_reads_total{result="failed"}') == 0
        assert set(incidents(nodes)) == {f"job/{job}", other}, incidents(nodes)
        marks = {name: [taint["key"] for taint in taints(nodes, name)] for name in NODES}
        assert {name for name, keys in marks.items() if keys} == {other}


def test_without_pods_the_same_reports_degrade_the_switch(nodes: Cluster) -> None:
    behind = [name for name, leaf in NODES.items() if leaf == "leaf-1"]
    with agents_of(nodes) as (aggregator, agents):
        agents.set_reports(dict.fromkeys(behind[:4], _LOST))
        aggregator.until(lambda: "fabric/spine/leaf-1" in incidents(nodes))
        assert "jobs" not in incidents(nodes)["fabric/spine/leaf-1"]
