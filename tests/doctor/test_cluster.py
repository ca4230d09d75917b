"""Checks of an installation in a cluster, on objects made by hand."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from nodeguard.doctor.cluster import (
    ClusterNode,
    ClusterObjects,
    TolerationSpec,
    Workload,
    check_cluster,
    topology_keys,
)
from nodeguard.doctor.cluster_reader import RIGHTS
from nodeguard.doctor.diagnostics import Diagnostic
from nodeguard.model.node import Taint
from tests.paths import ROOT

EXISTS = (TolerationSpec(operator="Exists"),)
HEALTHY = ClusterObjects(
    namespace="nodeguard",
    minor_version=33,
    has_incidents=True,
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
    descheduler_policies=(),
    has_locations=False,
)


def check(**changes: Any) -> dict[str, Diagnostic]:
    return {result.name: result for result in check_cluster(replace(HEALTHY, **changes), topology_keys())}


def test_a_correct_installation_passes() -> None:
    assert {result.status.value for result in check().values()} == {"passed", "skipped"}


@pytest.mark.parametrize(
    ("changes", "name", "status", "text"),
    [
        ({"minor_version": 29}, "version", "failed", "1.29"),
        ({"has_incidents": False}, "NodeIncidents", "failed", "not defined"),
        ({"deployments": ()}, "aggregator", "failed", "there is no nodeguard-aggregator"),
        (
            {"deployments": (Workload("ops", "nodeguard-aggregator", desired=2, ready=2),)},
            "aggregator", "failed", "no nodeguard-aggregator in namespace nodeguard",
        ),
        ({"cronjobs": (Workload("kube-system", "descheduler"),)}, "descheduler", "skipped", "found, without"),
        ({"daemonsets": (Workload("kube-system", "nccl-tcpx", images=("nvidia/gpudirect:1",)),)}, "other tools", "passed", "no other"),
        ({"daemonsets": (Workload("kube-system", "gpud-agent"),)}, "other tools", "warning", "gpud"),
        ({"daemonsets": (Workload("nodeguard", "nodeguard-agent", desired=9, ready=7),)}, "agents", "failed", "7 of 9"),
        ({"missing_rights": ("patch nodes",)}, "rights", "failed", "may not: patch nodes"),
        ({"missing_rights": None}, "rights", "skipped", "SubjectAccessReviews"),
        ({"nodes": (ClusterNode("gpu-1", {"topology.kubernetes.io/zone": "a"}, 8),)}, "topology labels", "warning", "1 of 1"),
        ({"nodes": (ClusterNode("gpu-1", {}, 8),), "has_locations": True}, "topology labels", "skipped", "the policy has"),
        ({"nodes": ()}, "topology labels", "skipped", "no node"),
        (
            {"daemonsets": (Workload("gpu-operator", "nvidia-device-plugin"),)},
            "GPU daemons", "warning", "gpu-operator/nvidia-device-plugin",
        ),
        (
            {"deployments": (Workload("kube-system", "cluster-autoscaler", words=("--v=4",)),)},
            "cluster-autoscaler", "warning", "copies taints",
        ),
        (
            {"descheduler_policies": ("kind: DeschedulerPolicy\nplugins: RemovePodsViolatingNodeTaints",)},
            "descheduler", "failed", "evicts running pods",
        ),
        (
            {"daemonsets": (Workload("kube-system", "npd", images=("registry.k8s.io/node-problem-detector:v1",)),)},
            "other tools", "warning", "node-problem-detector",
        ),
    ],
)  # fmt: skip
def test_a_fault_is_found_with_its_remedy(changes: dict[str, Any], name: str, status: str, text: str) -> None:
    result = check(**changes)[name]
    assert (result.status.value, text in result.message) == (status, True), result
    assert bool(result.remedy) == (status in {"warning", "failed"})


def test_remedies_of_neighbours_pass_the_check() -> None:
    autoscaler = Workload("kube-system", "cluster-autoscaler", words=("--v=4",))
    remedy = check(deployments=(autoscaler,))["cluster-autoscaler"].remedy
    words = tuple(remedy.removeprefix("add to its arguments: ").split())
    fixed = replace(autoscaler, words=(*autoscaler.words, *words))
    assert check(deployments=(fixed,))["cluster-autoscaler"].status.value == "passed"
    fixed = replace(autoscaler, words=tuple(part for word in words for part in word.split("=")))
    assert check(deployments=(fixed,))["cluster-autoscaler"].status.value == "passed"
    policy = "kind: DeschedulerPolicy\nplugins: RemovePodsViolatingNodeTaints"
    remedy = check(descheduler_policies=(policy,))["descheduler"].remedy
    assert check(descheduler_policies=(f"{policy}\n{remedy}",))["descheduler"].status.value == "passed"


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        (TolerationSpec(operator="Exists"), True),
        (TolerationSpec("nodeguard.dev/quarantine", "Exists"), True),
        (TolerationSpec("nodeguard.dev/quarantine", "Equal", "gpu", "NoSchedule"), True),
        (TolerationSpec("nodeguard.dev/quarantine", "Equal", "disk"), False),
        (TolerationSpec("nodeguard.dev/quarantine", "Exists", "", "NoExecute"), False),
        (TolerationSpec("nvidia.com/gpu", "Exists"), False),
    ],
)
def test_tolerations_as_the_scheduler_reads_them(toleration: TolerationSpec, expected: bool) -> None:
    assert toleration.tolerates(Taint("nodeguard.dev/quarantine", "NoSchedule", "gpu")) is expected


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
