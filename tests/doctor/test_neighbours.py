"""Conflicts of other tools with marks, on objects made by hand."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from nodeguard.doctor.cluster_objects import (
    ClusterNode,
    ClusterObjects,
    ConfigTexts,
    TolerationSpec,
    Workload,
)
from nodeguard.doctor.diagnostics import Diagnostic
from nodeguard.doctor.neighbours import NEIGHBOUR_CHECKS, TAINTS
from nodeguard.kube.incident_schema import own_action_fields, own_fields
from nodeguard.model.node import Taint

AUTOSCALER = Workload("kube-system", "cluster-autoscaler", words=("./cluster-autoscaler", "--v=4"))
MONITOR = Workload("kube-system", "npd", images=("registry.k8s.io/node-problem-detector:v1",))
MARKED = ClusterNode("gpu-1", {}, 8, taints=(Taint("nodeguard.dev/quarantine", "NoSchedule", "gpu"),))
POOLED = replace(MARKED, labels={"karpenter.sh/nodepool": "gpus"})
EMPTY = ClusterObjects(
    namespace="nodeguard",
    minor_version=33,
    incident_fields=own_fields(),
    action_fields=own_action_fields(),
    daemonsets=(),
    deployments=(),
    cronjobs=(),
    nodes=(),
    missing_rights=(),
    descheduler_policies=ConfigTexts(),
    has_locations=False,
)

# As the Helm chart of descheduler installs it.
EVICTING = """
apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
profiles:
- name: default
  pluginConfig:
  - name: RemovePodsViolatingNodeTaints
  plugins: {deschedule: {enabled: [RemovePodsHavingTooManyRestarts, RemovePodsViolatingNodeTaints]}}
"""
RULE = '{"plugin": "custom", "rules": [{"type": "permanent", "condition": "GpuProblem", "path": "%s"}]}'


def check(**changes: Any) -> dict[str, Diagnostic]:
    results = [check(replace(EMPTY, **changes)) for check in NEIGHBOUR_CHECKS]
    return {result.name: result for result in results}


def autoscaler(*flags: str) -> tuple[Workload, ...]:
    return (replace(AUTOSCALER, words=(*AUTOSCALER.words, *flags)),)


def annotated(node: ClusterNode, *annotations: str, value: str = "true") -> tuple[ClusterNode, ...]:
    return (replace(node, annotations=dict.fromkeys(annotations, value)),)


def test_a_cluster_without_neighbours_passes() -> None:
    assert {result.status.value for result in check().values()} == {"passed", "skipped"}


@pytest.mark.parametrize(
    ("changes", "name", "status", "text"),
    [
        (
            {"daemonsets": (Workload("gpu-operator", "nvidia-device-plugin"),)},
            "GPU daemons", "warning", "gpu-operator/nvidia-device-plugin",
        ),
        ({"deployments": autoscaler()}, "cluster-autoscaler", "warning", "copies taints into its templates"),
        (
            {"deployments": autoscaler(*(f"--startup-taint={key}" for key in TAINTS))},
            "cluster-autoscaler", "warning", "considers marked nodes unready",
        ),
        (
            {"deployments": autoscaler("--startup-taint-prefix", "nodeguard.dev/")},
            "cluster-autoscaler", "warning", "considers marked nodes unready",
        ),
        ({"deployments": autoscaler("--ignore-taint", TAINTS[0])}, "cluster-autoscaler", "warning", "unready"),
        (
            {"nodes": (MARKED,), "deployments": autoscaler()},
            "marked nodes", "warning",
            "cluster-autoscaler may delete 1 of 1 marked nodes, empty or with few running pods: gpu-1",
        ),
        (
            {"nodes": (POOLED,)},
            "marked nodes", "warning",
            "Karpenter may delete 1 of 1 marked nodes, empty or with few running pods: gpu-1",
        ),
        ({"nodes": annotated(POOLED, "karpenter.sh/do-not-disrupt", value="no")}, "marked nodes", "warning", "Karpenter"),
        ({"nodes": annotated(POOLED, "karpenter.sh/do-not-disrupt")}, "marked nodes", "passed", "no autoscaler"),
        ({"nodes": (MARKED,)}, "marked nodes", "passed", "no autoscaler may scale down a marked node"),
        ({"cronjobs": (Workload("kube-system", "descheduler"),)}, "descheduler", "skipped", "found, without"),
        ({"descheduler_policies": ConfigTexts((EVICTING,))}, "descheduler", "failed", "evicts running pods"),
        ({"descheduler_policies": ConfigTexts(("kind: DeschedulerPolicy\na: *b",))}, "descheduler", "skipped", "cannot be read"),
        ({"daemonsets": (MONITOR,)}, "node-problem-detector", "passed", "no rule"),
        (
            {"daemonsets": (MONITOR,), "monitor_configs": ConfigTexts((RULE % "/opt/bin/nodeguard", "not a configuration"))},
            "node-problem-detector", "warning", "exit code 2",
        ),
        (
            {"daemonsets": (MONITOR,), "monitor_configs": ConfigTexts(('{"conditions": [{"type": "NodeguardHealthy"}]}',))},
            "node-problem-detector", "warning", "both tools write it",
        ),
        (
            {"cronjobs": (Workload("ops", "descheduler"),), "descheduler_policies": ConfigTexts(forbidden=("ops",))},
            "descheduler", "skipped", "this user may not read ConfigMaps in ops",
        ),
        (
            {"daemonsets": (MONITOR,), "monitor_configs": ConfigTexts(forbidden=("kube-system",))},
            "node-problem-detector", "skipped", "this user may not read ConfigMaps in kube-system",
        ),
        (
            {"daemonsets": (MONITOR,), "monitor_configs": ConfigTexts((RULE % "/opt/bin/nodeguard",), ("ops",))},
            "node-problem-detector", "warning", "exit code 2",
        ),
        ({"daemonsets": (MONITOR,)}, "other tools", "warning", "node-problem-detector"),
        ({"daemonsets": (Workload("kube-system", "gpud-agent"),)}, "other tools", "warning", "gpud"),
        (
            {"daemonsets": (Workload("kube-system", "nccl-tcpx", images=("nvidia/gpudirect:1",)),)},
            "other tools", "passed", "no other",
        ),
    ],
)  # fmt: skip
def test_a_conflict_is_found_with_its_remedy(
    changes: dict[str, Any], name: str, status: str, text: str
) -> None:
    result = check(**changes)[name]
    assert (result.status.value, text in result.message) == (status, True), result
    assert bool(result.remedy) == (status in {"warning", "failed"})


@pytest.mark.parametrize("flags", [(), tuple(f"--startup-taint={key}" for key in TAINTS)])
def test_the_remedy_for_the_autoscaler_passes_the_check(flags: tuple[str, ...]) -> None:
    remedy = check(deployments=autoscaler(*flags))["cluster-autoscaler"].remedy
    words = remedy[remedy.index("--") :].split()
    split = [part for word in words for part in word.split("=")]
    for fixed in (words, split):
        assert check(deployments=autoscaler(*fixed))["cluster-autoscaler"].status.value == "passed"


def test_the_remedy_for_marked_nodes_passes_the_check() -> None:
    for node, deployments in ((MARKED, autoscaler()), (POOLED, ()), (POOLED, autoscaler())):
        remedy = check(nodes=(node,), deployments=deployments)["marked nodes"].remedy
        annotations = [word.partition("=")[0] for word in remedy.split() if "=true" in word]
        nodes = annotated(node, *annotations)
        assert check(nodes=nodes, deployments=deployments)["marked nodes"].status.value == "passed"


def test_each_autoscaler_that_may_delete_marked_nodes_is_reported() -> None:
    other = replace(MARKED, name="gpu-2")
    result = check(nodes=(POOLED, other), deployments=autoscaler())["marked nodes"]
    assert result.message == (
        "Karpenter may delete 1 of 2 marked nodes, empty or with few running pods: gpu-1; "
        "cluster-autoscaler may delete 2 of 2 marked nodes, empty or with few running pods: gpu-1, gpu-2"
    )


def test_the_remedy_for_nodes_of_karpenter_names_the_expiration_that_it_does_not_stop() -> None:
    remedies = [
        check(nodes=(node,), deployments=autoscaler())["marked nodes"].remedy for node in (POOLED, MARKED)
    ]
    assert ["expireAfter" in remedy for remedy in remedies] == [True, False]


def test_the_remedy_for_gpu_daemons_passes_the_check() -> None:
    daemon = Workload(
        "gpu-operator", "nvidia-device-plugin", tolerations=(TolerationSpec("nvidia.com/gpu", "Exists"),)
    )
    assert check(daemonsets=(daemon,))["GPU daemons"].status.value == "warning"
    tolerations = tuple(TolerationSpec(key, "Exists") for key in TAINTS)
    assert (
        check(daemonsets=(replace(daemon, tolerations=tolerations),))["GPU daemons"].status.value == "passed"
    )
