"""nodeguard doctor --cluster against a real API server, with the manifests applied."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nodeguard.cli.main import main
from tests.controlplane.cluster import Cluster
from tests.controlplane.objects import node
from tests.daemonset.manifests import apply, take_away

DAEMONSETS = "/apis/apps/v1/namespaces/gpu-operator/daemonsets"


def diagnose(capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    """Run the command. Returns its exit code, and the results by name."""
    code = main(["doctor", "--cluster", "-o", "json"])
    return code, {result["name"]: result for result in json.loads(capsys.readouterr().out)}


def test_a_real_cluster(
    controlplane: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(controlplane.kubeconfig))
    apply(controlplane)
    gpus = {"allocatable": {"nvidia.com/gpu": "8"}, "capacity": {"nvidia.com/gpu": "8"}}
    controlplane.api.post("/api/v1/nodes", {**node("gpu-1"), "status": gpus})
    controlplane.kubectl("create", "namespace", "gpu-operator")
    labels = {"app": "dcgm"}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "a", "image": "dcgm-exporter"}]}}
    spec = {"selector": {"matchLabels": labels}, "template": pod}
    controlplane.api.post(DAEMONSETS, {"metadata": {"name": "nvidia-dcgm-exporter"}, "spec": spec})
    code, results = diagnose(capsys)
    assert code == 2
    assert {name: result["status"] for name, result in results.items()} == {
        "version": "passed",
        "NodeIncidents": "passed",
        "aggregator": "failed",  # without a kubelet no pod becomes ready
        "agents": "failed",
        "rights": "passed",
        "topology labels": "warning",
        "GPU daemons": "warning",
        "cluster-autoscaler": "skipped",
        "descheduler": "skipped",
        "other tools": "passed",
    }
    assert "gpu-1" in results["topology labels"]["message"]
    assert "gpu-operator/nvidia-dcgm-exporter" in results["GPU daemons"]["message"]
    controlplane.kubectl("delete", "clusterrolebinding", "nodeguard-aggregator")
    _, results = diagnose(capsys)
    assert results["rights"]["message"].startswith("the aggregator may not: list nodes, watch nodes")
    take_away(controlplane)


def test_a_cluster_that_cannot_be_reached(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere/config")
    assert main(["doctor", "--cluster"]) == 3
    assert "nodeguard doctor: the cluster cannot be read: /nowhere/config" in capsys.readouterr().err
