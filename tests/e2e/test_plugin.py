"""The kubectl plug-in against a real API server, as people who may read incidents, run commands in pods, or nothing.

tests/e2e/test_plugin_in_pods.py runs commands in pods of real kubelets.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.controlplane.cluster import Cluster
from tests.daemonset.manifests import NAMESPACE
from tests.e2e import scene
from tests.e2e.fleet import Fleet
from tests.e2e.laptop import USER, Laptop
from tests.e2e.scene import ENFORCED, running_fleet

pytestmark = pytest.mark.slow

NODE = "gpu-7"

_INCIDENTS = "/apis/nodeguard.dev/v1alpha1/nodeincidents"

# What an aggregator answers and a NodeIncident does not say: the time of the answer, and what a mark waits for.
_DIFFERENT = frozenset({"at", "age", "last_transition_age", "marks"})

_ROLES = "see docs/install/kubernetes.md#roles-of-people"


def test_what_each_role_may_do(controlplane: Cluster, tmp_path: Path) -> None:
    with running_fleet(controlplane, ENFORCED, NODE, "gpu-8") as fleet:
        agent = fleet.agents[NODE]
        scene.inject_gpu_fault(agent)
        agent.until(lambda: recorded_state(controlplane) == "Marked")
        an_answer_names_the_missing_role(Laptop(controlplane, "newcomer", tmp_path))
        reader = Laptop(controlplane, "reader", tmp_path)
        reader.give("clusterrole", "nodeguard-viewer")
        a_viewer_reads_incidents(reader, fleet)
        a_viewer_reads_marks_and_nothing_of_reports(reader, fleet)
        a_viewer_runs_nothing_in_pods(reader)
        a_viewer_decides_nothing(reader)
        the_options_name_the_cluster(reader)
        a_user_is_impersonated(controlplane, reader, tmp_path)
        operator = Laptop(controlplane, "operator", tmp_path)
        operator.give("clusterrole", "nodeguard-operator")
        an_operator_decides_without_a_right_in_pods(operator, fleet)


def recorded_state(cluster: Cluster) -> str:
    """Return the state of the only NodeIncident; empty for none."""
    items = cluster.api.get(_INCIDENTS)["items"]
    return str(items[0].get("status", {}).get("state", "")) if items else ""


def an_answer_names_the_missing_role(newcomer: Laptop) -> None:
    assert newcomer.run("get", "incidents", code=3) == (
        "kubectl nodeguard get: you have no right to list NodeIncidents: the ClusterRole nodeguard-viewer gives it, "
        f"{_ROLES}\n"
    )
    assert "the ClusterRole nodeguard-viewer gives it" in newcomer.run("describe", "incident", NODE, code=3)
    assert "the Role nodeguard-admin" in newcomer.run("status", code=3)
    for command in (("get", "nodes"), ("describe", "node", NODE)):
        assert newcomer.run(*command, code=3) == (
            f"kubectl nodeguard {command[0]}: you have no right to read Nodes: the ClusterRole nodeguard-viewer gives it, "
            f"{_ROLES}\n"
        )


def a_viewer_reads_incidents(reader: Laptop, fleet: Fleet) -> None:
    [aggregator] = fleet.aggregators
    listed = json.loads(reader.run("get", "incidents", "-o", "json"))
    [incident] = listed["incidents"]
    [answered] = aggregator.query("/v1/incidents")["incidents"]
    assert common(incident) == common(answered)
    assert NODE in reader.run_printed("kubectl nodeguard get incidents")
    assert reader.run("get", "incidents", "-o", "name") == f"incident/{answered['name']}\n"
    assert json.loads(reader.run("get", "incidents", "-n", "gpu-8", "-o", "json"))["incidents"] == []
    assert len(json.loads(reader.run("get", "incidents", "-n", NODE, "-A", "-o", "json"))["incidents"]) == 1
    assert json.loads(reader.run("get", "incidents", "--state", "resolved", "-o", "json"))["incidents"] == []
    full = json.loads(reader.run("describe", "incident", NODE, "-o", "json"))
    assert common(full) == common(aggregator.query(f"/v1/incidents/{answered['name']}"))
    assert "kubectl drain" in reader.run_printed(
        "kubectl nodeguard describe incident NAME", NAME=answered["name"]
    )
    assert "incident 'gpu-99' not found" in reader.run("describe", "incident", "gpu-99", code=3)


def common(incident: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an incident has in both answers."""
    return {name: value for name, value in incident.items() if name not in _DIFFERENT}


def a_viewer_reads_marks_and_nothing_of_reports(reader: Laptop, fleet: Fleet) -> None:
    fleet.cluster.kubectl("cordon", "gpu-8")
    [aggregator] = fleet.aggregators
    answered = aggregator.query(f"/v1/nodes/{NODE}")
    listed = json.loads(reader.run("get", "nodes", "-o", "json"))
    marked, cordoned = listed["nodes"]
    assert (marked["node"], marked["work"], marked["marks"]) == (NODE, "marked", ["quarantine"])
    [incident] = answered["incidents"]
    assert (marked["worst"], marked["since"]) == (incident["cause"], incident["since"])
    assert (cordoned["node"], cordoned["work"], cordoned["marks"]) == ("gpu-8", "cordoned", [])
    for node in listed["nodes"]:
        assert (node["health"], node["stale"], node["gpus"]) == ("unknown", None, 8)
    for text in (reader.run_printed("kubectl nodeguard get nodes"), reader.run("get", "nodes", "-o", "wide")):
        heading, _, _, *notes = text.splitlines()
        assert not {"HEALTH", "FINDINGS", "REPORT", "DRIVER", "POOL"} & set(heading.split())
        noted = " ".join(notes)
        assert "not read: health, findings, hardware, " in noted
        assert "Role nodeguard-admin" in noted
        assert "not listed: Nodes that have no GPUs in their capacity, no mark and no incident" in noted
    assert reader.run("get", "nodes", "--marked", "-o", "name") == f"node/{NODE}\n"
    assert reader.run("get", "nodes", "-l", "kubernetes.io/hostname=gpu-8", "-o", "name") == "node/gpu-8\n"
    assert "node 'gpu-9' not found" in reader.run("get", "nodes", "gpu-9", code=3)
    described = json.loads(reader.run("describe", "node", NODE, "-o", "json"))
    [mark] = described["marks"]
    assert mark["wait"]["message"] == "what only the aggregator knows"
    assert {**mark, "wait": 0, "age": 0} == {**answered["marks"][0], "wait": 0, "age": 0}
    assert (described["findings"], described["budgets"], described["stale"]) == ([], [], None)
    [incident] = described["open_incidents"]
    assert (incident["remedy"], incident["how"] != []) == (answered["findings"][0]["remedy"], True)
    assert f"Details: nodeguard describe node {NODE}" in described["condition"]
    assert f"nodeguard describe incident {incident['name']}" in reader.run("describe", NODE)
    assert "node 'gpu-9' not found" in reader.run("describe", "node", "gpu-9", code=3)
    assert "no right to run commands in pods" in reader.run("describe", "domain", "rack/r1", code=3)
    fleet.cluster.kubectl("uncordon", "gpu-8")


def a_viewer_runs_nothing_in_pods(reader: Laptop) -> None:
    assert reader.run("get", "nodes", "--unhealthy", code=3) == (
        f"kubectl nodeguard get: you have no right to run commands in pods of the namespace {NAMESPACE}: the Role "
        f"nodeguard-admin (value roles.admin.enabled of the chart) gives it, {_ROLES}\n"
    )


def a_viewer_decides_nothing(reader: Laptop) -> None:
    assert reader.run("incidents", "acknowledge", NODE, code=3) == (
        "kubectl nodeguard incidents: you have no right to decide about incidents: the ClusterRole nodeguard-operator "
        f"gives it, {_ROLES}\n"
    )


def an_operator_decides_without_a_right_in_pods(operator: Laptop, fleet: Fleet) -> None:
    [aggregator] = fleet.aggregators
    [name] = [item["name"] for item in aggregator.query("/v1/incidents")["incidents"]]
    printed = "kubectl nodeguard incidents acknowledge gpu-7/gpu-lost"
    acknowledged = operator.run_printed(printed, **{"gpu-lost": "gpu-gsp-failure"})
    assert acknowledged == f"{name} is acknowledged\n"
    aggregator.until(lambda: aggregator.query(f"/v1/incidents/{name}")["acknowledged"] == USER)
    assert "there is nothing to withdraw" in operator.run("incidents", "withdraw", NODE, code=3)
    false_alarm = ("incidents", "clear", NODE, "--false-alarm", "--reason", "a test")
    # It waits for the agent, which the NodeAction records.
    assert operator.run(*false_alarm).startswith(f"{name} is recorded as a false alarm; ")
    full = json.loads(operator.run("describe", "incident", name, "-o", "json"))
    assert full["clear_result"] == "done"
    assert (full["false_alarm"]["by"], full["false_alarm"]["reason"]) == (USER, "a test")
    aggregator.until(lambda: recorded_state(fleet.cluster) == "Resolved")
    assert f"{name} is over already" in operator.run("incidents", "acknowledge", NODE, code=3)
    assert "is no longer recorded as a false alarm" in operator.run("incidents", "withdraw", NODE)


def the_options_name_the_cluster(reader: Laptop) -> None:
    kubeconfig = reader.environment.pop("KUBECONFIG")
    assert "name a kubeconfig" in reader.run("get", "incidents", code=3)
    options = ("--kubeconfig", kubeconfig, "--context=tests")
    assert NODE in reader.run(*options, "get", "incidents")
    assert NODE in reader.run("get", "incidents", *options)
    assert "other" in reader.run("get", "incidents", "--kubeconfig", kubeconfig, "--context", "other", code=3)
    reader.environment["KUBECONFIG"] = kubeconfig


def a_user_is_impersonated(cluster: Cluster, reader: Laptop, directory: Path) -> None:
    assert "cannot impersonate" in reader.run("get", "incidents", "--as", "ada", code=3)
    lead = Laptop(cluster, "lead", directory)
    rule = ("--verb=impersonate", "--resource=users,groups")
    cluster.kubectl("create", "clusterrole", "impersonator", *rule)
    lead.give("clusterrole", "impersonator")
    assert "ada has no right to list NodeIncidents" in lead.run("get", "incidents", "--as", "ada", code=3)
    assert "ada has no right to run commands in pods" in lead.run("status", "--as", "ada", code=3)
    reading = ("--clusterrole=nodeguard-viewer", "--group=gpu-users")
    cluster.kubectl("create", "clusterrolebinding", "gpu-users", *reading)
    groups = ("--as-group", "others", "--as-group", "gpu-users")
    assert NODE in lead.run("get", "incidents", "--as", "ada", *groups)
