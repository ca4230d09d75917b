"""nodeguard doctor --cluster against a real API server, with the manifests applied."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodeguard.cli.main import main
from nodeguard.doctor.neighbours import TAINTS
from tests.controlplane.cluster import Cluster
from tests.controlplane.credentials import write_kubeconfig
from tests.controlplane.definitions import CRD, is_served
from tests.controlplane.objects import node
from tests.daemonset.manifests import apply, take_away
from tests.doctor.test_neighbours import EVICTING, RULE
from tests.kube.test_client import plain_kubeconfig
from tests.ports import free_ports

CONTAINERS = [{"name": "a", "image": "dcgm-exporter"}]
NEIGHBOURS = ("cluster-autoscaler", "marked nodes", "descheduler", "node-problem-detector")
DAEMONSETS = "/apis/apps/v1/namespaces/gpu-operator/daemonsets"


@pytest.fixture
def controlplane(controlplane: Cluster) -> Iterator[Cluster]:
    """A control plane with the manifests applied. What the tests create in its namespaces is deleted at the end."""
    apply(controlplane)
    yield controlplane
    take_away(controlplane)
    delete = ("delete", "-n", "kube-system", "--ignore-not-found")
    controlplane.kubectl(*delete, "deployments,daemonsets,cronjobs", "--all")
    controlplane.kubectl(*delete, "configmaps", "descheduler", "npd")
    controlplane.kubectl("delete", "--ignore-not-found", "clusterrole/limited", "clusterrolebinding/limited")


def diagnose(capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    """Run the command. Returns its exit code, and the results by name."""
    code = main(["doctor", "--cluster", "-o", "json"])
    return code, {result["name"]: result for result in json.loads(capsys.readouterr().out)}


def limited_kubeconfig(cluster: Cluster, directory: Path) -> Path:
    """Return the kubeconfig of a user that may read no ConfigMaps."""
    rule = (
        "nodes,daemonsets.apps,deployments.apps,cronjobs.batch,customresourcedefinitions.apiextensions.k8s.io"
    )
    cluster.kubectl("create", "clusterrole", "limited", "--verb=get,list", f"--resource={rule}")
    account = "--serviceaccount=nodeguard:default"
    cluster.kubectl("create", "clusterrolebinding", "limited", "--clusterrole=limited", account)
    token = cluster.kubectl("create", "token", "default", "-n", "nodeguard").strip()
    path = directory / "kubeconfig"
    write_kubeconfig(path, cluster.url, cluster.ca, token)
    return path


def test_a_real_cluster(
    controlplane: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(controlplane.kubeconfig))
    gpus = {"allocatable": {"nvidia.com/gpu": "8"}, "capacity": {"nvidia.com/gpu": "8"}}
    controlplane.api.post("/api/v1/nodes", {**node("gpu-1"), "status": gpus})
    controlplane.kubectl("create", "namespace", "gpu-operator")
    labels = {"app": "dcgm"}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": CONTAINERS}}
    spec = {"selector": {"matchLabels": labels}, "template": pod}
    controlplane.api.post(DAEMONSETS, {"metadata": {"name": "nvidia-dcgm-exporter"}, "spec": spec})
    code, results = diagnose(capsys)
    assert code == 2
    assert {name: result["status"] for name, result in results.items()} == {
        "version": "passed",
        "NodeIncidents": "passed",
        "NodeActions": "passed",
        "aggregator": "failed",  # without a kubelet no pod becomes ready
        "agents": "failed",
        "rights": "passed",
        "topology labels": "warning",
        "GPU daemons": "warning",
        "cluster-autoscaler": "skipped",
        "marked nodes": "skipped",
        "descheduler": "skipped",
        "node-problem-detector": "skipped",
        "other tools": "passed",
    }
    assert "gpu-1" in results["topology labels"]["message"]
    located = '{"data": {"policy.yaml": "topologies:\\n  rack: rack\\n"}}'
    controlplane.kubectl(
        "patch", "configmap", "nodeguard-policy", "-n", "nodeguard", "--type=merge", "-p", located
    )
    _, results = diagnose(capsys)
    assert results["topology labels"]["status"] == "skipped"
    assert "gpu-operator/nvidia-dcgm-exporter" in results["GPU daemons"]["message"]
    controlplane.kubectl("delete", "rolebinding", "nodeguard-events", "-n", "default")
    _, results = diagnose(capsys)
    assert results["rights"]["message"] == "the aggregator may not: create events in default"
    controlplane.kubectl("delete", "clusterrolebinding", "nodeguard-aggregator")
    _, results = diagnose(capsys)
    assert results["rights"]["message"].startswith("the aggregator may not: list nodes, watch nodes")


def test_an_older_definition_of_incidents_in_a_real_cluster(
    controlplane: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(controlplane.kubeconfig))
    older = yaml.safe_load(CRD.read_text())
    [version] = older["spec"]["versions"]
    properties = version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    del properties["hardware"], version["additionalPrinterColumns"]
    properties["action"]["enum"] = ["none", "monitor", "reset-gpu"]
    (tmp_path / "crd.json").write_text(json.dumps(older))
    controlplane.kubectl("apply", "--server-side", "-f", str(tmp_path / "crd.json"))
    _, results = diagnose(capsys)
    # The API server starts the storage of the definition again.
    controlplane.until(lambda: is_served(controlplane), "kube-apiserver")
    assert results["NodeIncidents"]["status"] == "warning"
    assert results["NodeIncidents"]["message"] == (
        "incidents are stored without some data: status.action refuses contact-support, reboot-node, "
        "replace-component, restart-service, restart-workload; status.hardware is missing"
    )
    assert "crd-nodeincidents.yaml" in results["NodeIncidents"]["remedy"]


def test_neighbours_in_a_real_cluster(
    controlplane: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(controlplane.kubeconfig))
    pod = {
        "containers": [
            {"name": "a", "image": "a", "command": ["./a", "--startup-taint-prefix=nodeguard.dev/"]}
        ]
    }
    workload: dict[str, Any] = {"selector": {"matchLabels": {"app": "a"}}}
    workload["template"] = {"metadata": {"labels": {"app": "a"}}, "spec": pod}
    for kind, name in (("deployments", "cluster-autoscaler"), ("daemonsets", "node-problem-detector")):
        body = {"metadata": {"name": name}, "spec": workload}
        controlplane.api.post(f"/apis/apps/v1/namespaces/kube-system/{kind}", body)
    job = {"spec": {"template": {"spec": {**pod, "restartPolicy": "Never"}}}}
    cronjob = {"metadata": {"name": "descheduler"}, "spec": {"schedule": "@hourly", "jobTemplate": job}}
    controlplane.api.post("/apis/batch/v1/namespaces/kube-system/cronjobs", cronjob)
    for name, text in (("descheduler", EVICTING), ("npd", RULE % "/usr/bin/nodeguard")):
        body = {"metadata": {"name": name}, "data": {"config": text}}
        controlplane.api.post("/api/v1/namespaces/kube-system/configmaps", body)
    marked = node("gpu-1", labels={"karpenter.sh/nodepool": "gpus"})
    marked["spec"] = {"taints": [{"key": TAINTS[0], "value": "gpu", "effect": "NoSchedule"}]}
    controlplane.api.post("/api/v1/nodes", marked)
    _, results = diagnose(capsys)
    assert {name: results[name]["status"] for name in NEIGHBOURS} == {
        "cluster-autoscaler": "warning",
        "marked nodes": "warning",
        "descheduler": "failed",
        "node-problem-detector": "warning",
    }
    assert "Karpenter may delete 1 of 1 marked nodes" in results["marked nodes"]["message"]
    controlplane.kubectl("annotate", "node", "gpu-1", "karpenter.sh/do-not-disrupt=true")
    _, results = diagnose(capsys)
    assert "cluster-autoscaler may delete 1 of 1 marked nodes" in results["marked nodes"]["message"]
    monkeypatch.setenv("KUBECONFIG", str(limited_kubeconfig(controlplane, tmp_path)))
    _, results = diagnose(capsys)
    for name in ("descheduler", "node-problem-detector"):
        assert results[name]["status"] == "skipped"
        assert results[name]["message"] == "this user may not read ConfigMaps in kube-system"


@pytest.mark.parametrize(
    "content", ["{", '{"metadata": {}, "items": null}', '{"metadata": {}, "items": [{}]}']
)
def test_a_response_that_is_not_kubernetes_is_an_error_with_its_path(
    content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(content.encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setenv("KUBECONFIG", str(plain_kubeconfig(tmp_path, url)))
        assert main(["doctor", "--cluster"]) == 3
        server.shutdown()
    assert "the response of /apis/apps/v1/daemonsets cannot be used" in capsys.readouterr().err


def test_a_cluster_that_cannot_be_reached(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere/config")
    assert main(["doctor", "--cluster"]) == 3
    assert "nodeguard doctor: the cluster cannot be read: /nowhere/config" in capsys.readouterr().err


def test_the_command_line_names_a_kubeconfig_and_its_context(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere/config")
    path = str(plain_kubeconfig(tmp_path, "http://192.0.2.1"))
    assert main(["doctor", "--cluster", "--kubeconfig", path, "--context", "missing"]) == 3
    error = capsys.readouterr().err
    assert f"{path}: " in error
    assert "context 'missing': see `kubectl config get-contexts`" in error
    assert main(["doctor", "--kubeconfig", path]) == 3
    expected = "--kubeconfig is for --cluster only: add --cluster, or remove --kubeconfig"
    assert expected in capsys.readouterr().err


def test_without_a_variable_the_kubeconfig_is_that_of_the_home_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    [port] = free_ports(1)
    (tmp_path / ".kube").mkdir()
    plain_kubeconfig(tmp_path, f"http://127.0.0.1:{port}").rename(tmp_path / ".kube" / "config")
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert main(["doctor", "--cluster"]) == 3
    assert f"http://127.0.0.1:{port}" in capsys.readouterr().err
