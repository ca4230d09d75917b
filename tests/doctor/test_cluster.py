"""Checks of an installation in a cluster, on objects made by hand."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from nodeguard.doctor.cluster import CHECKS
from nodeguard.doctor.cluster_objects import (
    ClusterNode,
    ClusterObjects,
    ConfigTexts,
    TolerationSpec,
    Workload,
)
from nodeguard.doctor.cluster_reader import RIGHTS
from nodeguard.doctor.diagnostics import Diagnostic
from nodeguard.kube.incident_schema import FieldSchema, own_action_fields, own_fields
from tests.paths import ROOT

EXISTS = (TolerationSpec(operator="Exists"),)
HEALTHY = ClusterObjects(
    namespace="nodeguard",
    minor_version=33,
    incident_fields=own_fields(),
    action_fields=own_action_fields(),
    daemonsets=(
        Workload("nodeguard", "nodeguard-agent", desired=2, ready=2),
        Workload("gpu-operator", "nvidia-dcgm-exporter", tolerations=EXISTS),
    ),
    deployments=(Workload("nodeguard", "nodeguard-aggregator", desired=2, ready=2),),
    cronjobs=(),
    nodes=(
        ClusterNode("gpu-1", {"topology.k8s.aws/network-node-layer-3": "n1"}, 8),
        ClusterNode("cpu-1", {}, 0),
    ),
    missing_rights=(),
    descheduler_policies=ConfigTexts(),
    has_locations=False,
)


def check(**changes: Any) -> dict[str, Diagnostic]:
    results = [check(replace(HEALTHY, **changes)) for check in CHECKS]
    return {result.name: result for result in results}


def test_a_correct_installation_passes() -> None:
    assert {result.status.value for result in check().values()} == {"passed", "skipped"}


@pytest.mark.parametrize(
    ("changes", "name", "status", "text"),
    [
        ({"minor_version": 29}, "version", "failed", "1.29"),
        ({"incident_fields": None}, "NodeIncidents", "failed", "not defined"),
        ({"action_fields": None}, "NodeActions", "warning", "not defined: no incident of a node can be"),
        (
            {"action_fields": {**own_action_fields(), "spec.action": FieldSchema("string", frozenset({"Clear"}))}},
            "NodeActions",
            "warning",
            "no incident of a node can be cleared: spec.action refuses DetachGpus",
        ),
        ({"deployments": ()}, "aggregator", "failed", "there is no nodeguard-aggregator"),
        (
            {"deployments": (Workload("ops", "nodeguard-aggregator", desired=2, ready=2),)},
            "aggregator", "failed", "no nodeguard-aggregator in namespace nodeguard",
        ),
        ({"daemonsets": (Workload("nodeguard", "nodeguard-agent", desired=9, ready=7),)}, "agents", "failed", "7 of 9"),
        ({"daemonsets": (Workload("nodeguard", "nodeguard-agent"),)}, "agents", "failed", "nodeguard/nodeguard-agent has no pods"),
        ({"daemonsets": (Workload("nodeguard", "nodeguard-agent", desired=9, ready=9, is_updating=True),)}, "agents", "warning", "an update is not complete"),
        ({"missing_rights": ("patch nodes",)}, "rights", "failed", "may not: patch nodes"),
        ({"missing_rights": None}, "rights", "skipped", "SubjectAccessReviews"),
        ({"nodes": (ClusterNode("gpu-1", {"topology.kubernetes.io/zone": "a"}, 8),)}, "topology labels", "warning", "1 of 1"),
        ({"nodes": (ClusterNode("gpu-1", {}, 8),), "has_locations": True}, "topology labels", "skipped", "the policy has"),
        ({"nodes": (ClusterNode("gpu-1", {"nvidia.com/gpu.clique": "Unknown"}, 8),)}, "topology labels", "warning", "the placeholder 'Unknown' is in nvidia.com/gpu.clique of 1 of 1 node with GPUs"),
        ({"nodes": ()}, "topology labels", "skipped", "no node"),
    ],
)  # fmt: skip
def test_a_fault_is_found_with_its_remedy(changes: dict[str, Any], name: str, status: str, text: str) -> None:
    result = check(**changes)[name]
    assert (result.status.value, text in result.message) == (status, True), result
    assert bool(result.remedy) == (status in {"warning", "failed"})


def test_a_definition_of_an_older_version_is_named_field_by_field() -> None:
    served = own_fields()
    for path in [path for path in served if path.startswith("status.diagnosis")]:
        del served[path]
    del served["status.jobsOmitted"]
    served["status.state"] = replace(served["status.state"], values=frozenset({"Open", "Resolved"}))
    served["status.message"] = FieldSchema("string", limits={"maxLength": 80})
    served["status.jobs[]"] = FieldSchema("integer")
    result = check(incident_fields=served)["NodeIncidents"]
    assert result.status.value == "warning"
    assert set(result.message.removeprefix("incidents are stored without some data: ").split("; ")) == {
        "status.diagnosis is missing",
        "status.jobsOmitted is missing",
        "status.state refuses DryRun, Marked, Recovering, Withheld",
        "status.message has maxLength 80 instead of 1024",
        "status.jobs[] is of type integer instead of string",
    }
    assert "crd-nodeincidents.yaml" in result.remedy


def test_a_definition_of_a_newer_version_loses_nothing() -> None:
    served = {**own_fields(), "status.rack": FieldSchema("string")}
    state = served["status.state"]
    served["status.state"] = replace(state, values=state.values | {"Draining"})
    served["status.message"] = FieldSchema("string", limits={"maxLength": 4096})
    result = check(incident_fields=served)["NodeIncidents"]
    assert (result.status.value, "status.rack" in result.message) == ("passed", True)


def test_the_shipped_roles_grant_the_rights_that_are_checked() -> None:
    documents = list(yaml.safe_load_all((ROOT / "daemonset" / "rbac.yaml").read_text()))
    granted = {
        (verb, group, resource)
        for document in documents
        for rule in document.get("rules", ())
        for verb in rule["verbs"]
        for group in rule.get("apiGroups", ())
        for resource in rule.get("resources", ())
    }
    assert {(verb, group, resource) for verb, group, resource, _ in RIGHTS} <= granted
