"""A release of the chart in a cluster: installed, upgraded, rolled back, and uninstalled without a mark left."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.controlplane.api import Object
from tests.controlplane.cluster import API, Cluster, NewCluster
from tests.controlplane.credentials import write_kubeconfig
from tests.controlplane.objects import node
from tests.daemonset.helm import CHART, EARLIER, RELEASE, Helm, names_jobs, objects
from tests.daemonset.manifests import AGENT, AGGREGATOR, NAMESPACE, apply, documents, is_served, token
from tests.daemonset.test_admission import mark_node

pytestmark = pytest.mark.slow

SPACE = f"/api/v1/namespaces/{NAMESPACE}"
JOBS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
INCIDENTS = "/apis/nodeguard.dev/v1alpha1/nodeincidents"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{AGGREGATOR}"
DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/nodeincidents.nodeguard.dev"

# There is no kubelet that would run the Job that validates the policy.
UNCHECKED = {"policyCheck": {"enabled": False}}

TEST_POD = f"{SPACE}/pods/nodeguard-test"

# The pods of the Job that removes all marks.
UNINSTALLING = f"{SPACE}/pods?labelSelector=app.kubernetes.io/name=nodeguard-uninstall"


@pytest.fixture(scope="module")
def site(new_cluster: NewCluster) -> Iterator[Cluster]:
    with new_cluster() as made:
        made.api.post("/api/v1/nodes", node("clean", labels={"kubernetes.io/os": "linux"}))
        yield made


@pytest.fixture
def release(site: Cluster, tmp_path: Path) -> Helm:
    return Helm(tmp_path, site)


def policy(site: Cluster) -> Any:
    return yaml.safe_load(site.api.get(f"{SPACE}/configmaps/nodeguard-policy")["data"]["policy.yaml"])


def test_install_upgrade_roll_back(site: Cluster, release: Helm) -> None:
    notes = release("install", RELEASE, str(EARLIER), "--create-namespace", values={})
    for command in ("kubectl rollout status", "nodeguard status", "kubectl get nodeincidents"):
        assert command in notes
    assert "observe mode: it writes nothing to Nodes" in notes
    incident = {
        "apiVersion": "nodeguard.dev/v1alpha1",
        "kind": "NodeIncident",
        "metadata": {"name": "before"},
        "spec": {"acknowledged": "ada"},
    }
    site.until(lambda: is_served(site, INCIDENTS), "kube-apiserver")
    site.api.post(INCIDENTS, incident)
    assert not names_jobs(site.api.get(DEFINITION))

    policy_values = {"defaultMode": "observe", "budget": {"fleet": "2%"}}
    values = {**UNCHECKED, "policy": policy_values, "aggregator": {"replicas": 3}}
    release("upgrade", RELEASE, str(CHART), values=values)
    assert names_jobs(site.api.get(DEFINITION))
    assert policy(site) == values["policy"]
    deployment = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{AGGREGATOR}"
    assert site.api.get(deployment)["spec"]["replicas"] == 3

    release("rollback", RELEASE, "1")
    assert not names_jobs(site.api.get(DEFINITION))
    assert policy(site) == {"defaultMode": "observe"}
    assert site.api.get(deployment)["spec"]["replicas"] == 2
    assert site.api.get(f"{INCIDENTS}/before")["spec"] == {"acknowledged": "ada"}
    release("upgrade", RELEASE, str(CHART), values=UNCHECKED)


def test_an_upgrade_without_the_registry_is_refused(release: Helm) -> None:
    with pytest.raises(subprocess.CalledProcessError) as refused:
        release("upgrade", RELEASE, str(CHART), values={"image": {}, "policy": {"defaultMode": "enforce"}})
    assert "set it to the registry with your images" in refused.value.stderr
    assert "upgrade with --reset-then-reuse-values" in refused.value.stderr
    release("upgrade", RELEASE, str(CHART), "--reset-then-reuse-values", values={"image": {}, **UNCHECKED})


def test_a_release_has_the_objects_of_the_manifests(release: Helm) -> None:
    deployed = [
        (made["kind"], made["metadata"]["name"]) for made in objects(release("get", "manifest", RELEASE))
    ]
    plain = {(made["kind"], made["metadata"]["name"]) for made in documents()}
    assert set(deployed) == plain - {("Namespace", NAMESPACE)}


def finish(site: Cluster, pod: Any, directory: Path) -> str:
    """Run the container of a pod as a process, as its kubelet would; return its output."""
    [container] = pod["spec"]["containers"]
    name = pod["metadata"]["name"]
    kubeconfig = directory / "kubeconfig"
    account = pod["spec"]["serviceAccountName"]
    write_kubeconfig(kubeconfig, site.url, site.ca, token(site, account, name))
    fields = {"metadata.namespace": NAMESPACE, "metadata.name": name}
    variables = {
        item["name"]: fields[item["valueFrom"]["fieldRef"]["fieldPath"]] for item in container.get("env", ())
    }
    # The image has the command in its path.
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    ran = subprocess.run(
        [*container.get("command", ["nodeguard"]), *container.get("args", ())],
        check=False,
        env={"PATH": programs, "KUBECONFIG": str(kubeconfig), **variables},
        capture_output=True,
        text=True,
    )
    phase = "Failed" if ran.returncode else "Succeeded"
    site.api.patch(f"{SPACE}/pods/{name}/status", {"status": {"phase": phase}})
    return ran.stdout + ran.stderr


def run_tests(site: Cluster, release: Helm, directory: Path) -> tuple[int, str]:
    """Run `helm test`; return its exit code, and the output of its pod."""

    def pending_pod() -> Object | None:
        """Return the pod of this run. Helm first deletes that of the run before."""
        pod = site.found(TEST_POD)
        return pod if pod is not None and pod["status"]["phase"] == "Pending" else None

    with release.start("test", RELEASE) as helm:
        try:
            output = finish(site, site.until(pending_pod, "kube-apiserver"), directory)
            helm.communicate(timeout=60)
        finally:
            helm.kill()
    return helm.returncode, output


def test_helm_tests_the_release(site: Cluster, release: Helm, tmp_path: Path) -> None:
    code, output = run_tests(site, release, tmp_path)
    assert "0 of 2 pods of nodeguard/nodeguard-aggregator are ready" in output
    assert code != 0
    # Nothing that it had to read is forbidden.
    assert "passed   rights" in output
    assert "passed   NodeActions" in output

    def are_ready() -> bool:
        """Report the pods as a kubelet does, and return whether the controllers have seen it."""
        for pod in site.api.get(f"{SPACE}/pods")["items"]:
            if pod["metadata"]["labels"]["app.kubernetes.io/name"] not in {AGENT, AGGREGATOR}:
                continue
            ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
            site.api.patch(f"{SPACE}/pods/{pod['metadata']['name']}/status", {"status": ready})
        deployment = site.api.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{AGGREGATOR}")
        daemons = site.api.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/{AGENT}")
        return bool(deployment["status"].get("readyReplicas") == 2 and daemons["status"].get("numberReady"))

    site.until(are_ready, "kube-controller-manager")
    code, output = run_tests(site, release, tmp_path)
    assert code == 0, output
    assert not site.has(TEST_POD)
    assert not site.has("/apis/rbac.authorization.k8s.io/v1/clusterroles/nodeguard-test")


def active_pod(site: Cluster) -> Any:
    """Return the pod of the Job that has not failed; None for none."""
    pods = site.api.get(UNINSTALLING)["items"]
    return next((pod for pod in pods if pod["status"]["phase"] == "Pending"), None)


def left(site: Cluster, name: str) -> Object:
    """Return what nodeguard writes on a Node, of a Node."""
    found = site.api.get(f"/api/v1/nodes/{name}")
    conditions = found["status"]["conditions"]
    return {
        "taints": [taint["key"] for taint in found["spec"].get("taints", []) if "nodeguard" in taint["key"]],
        "annotations": [key for key in found["metadata"].get("annotations", {}) if "nodeguard" in key],
        "conditions": [item["type"] for item in conditions if "Nodeguard" in item["type"]],
    }


def test_the_job_of_a_stopped_helm_ends_by_itself(site: Cluster, release: Helm) -> None:
    values = {**UNCHECKED, "uninstall": {"timeoutSeconds": 30}}
    release("upgrade", RELEASE, str(CHART), values=values)
    uninstall = release.start("uninstall", RELEASE)
    try:
        site.until(lambda: active_pod(site), "kube-controller-manager")
    finally:
        uninstall.kill()
        uninstall.communicate()
    job = site.api.get(f"{JOBS}/nodeguard-uninstall")
    assert job["spec"]["activeDeadlineSeconds"] == 30
    assert job["spec"]["ttlSecondsAfterFinished"] > 0

    def is_over() -> bool:
        conditions = site.api.get(f"{JOBS}/nodeguard-uninstall")["status"].get("conditions", [])
        return any(condition.get("reason") == "DeadlineExceeded" for condition in conditions)

    site.until(is_over, "kube-controller-manager")
    site.until(lambda: active_pod(site) is None or _end_pods(site), "kube-controller-manager")


def test_an_uninstall_that_cannot_remove_marks_deletes_nothing(site: Cluster, release: Helm) -> None:
    installed = list(objects(release("get", "manifest", RELEASE)))
    uninstall = release.start("uninstall", RELEASE)
    try:
        pod = site.until(lambda: site.api.get(UNINSTALLING)["items"], "kube-controller-manager")[0]
        # Without another attempt.
        site.api.patch(f"{JOBS}/nodeguard-uninstall", {"spec": {"backoffLimit": 0}})
        site.api.patch(f"{SPACE}/pods/{pod['metadata']['name']}/status", {"status": {"phase": "Failed"}})
        output, _ = uninstall.communicate(timeout=60)
    finally:
        uninstall.kill()
    assert uninstall.returncode != 0
    assert "nodeguard-uninstall" in output
    assert list(objects(release("get", "manifest", RELEASE))) == installed
    for kind in ("deployment/nodeguard-aggregator", "serviceaccount/nodeguard-aggregator"):
        assert site.kubectl("get", "-n", NAMESPACE, kind, "-o", "name")
    # Helm has deleted it, and printed its log: it could otherwise remove the marks of the next installation.
    site.until(lambda: not site.has(f"{JOBS}/nodeguard-uninstall"), "kube-controller-manager")


def test_uninstall_leaves_no_mark(site: Cluster, release: Helm, tmp_path: Path) -> None:
    mark_node(site, "marked")
    assert all(left(site, "marked").values())
    installed = list(objects(release("get", "manifest", RELEASE)))
    uninstall = release.start("uninstall", RELEASE)
    try:
        pod = site.until(lambda: active_pod(site), "kube-controller-manager")
        # Nothing is deleted before the marks are removed.
        assert site.has(f"{SPACE}/serviceaccounts/{AGGREGATOR}")
        assert finish(site, pod, tmp_path).startswith("removed all marks (nodes: 1, GPUs: 0)")
        # No aggregator sets marks again before Helm deletes the aggregators.
        assert site.api.get(LEASE)["spec"]["holderIdentity"].startswith(pod["metadata"]["name"])
        output, _ = uninstall.communicate(timeout=60)
    finally:
        uninstall.kill()
    assert uninstall.returncode == 0, output
    assert left(site, "marked") == {"taints": [], "annotations": [], "conditions": []}
    assert site.api.get("/api/v1/nodes/marked")["spec"]["taints"] == [
        {"key": "example.com/theirs", "effect": "NoSchedule"}
    ]
    gone = [made for made in installed if made["kind"] != "CustomResourceDefinition"]
    file = tmp_path / "installed.yaml"
    file.write_text(yaml.safe_dump_all(gone))
    site.until(
        lambda: not site.kubectl("get", "-f", str(file), "--ignore-not-found", "-o", "name"),
        "kube-controller-manager",
    )
    assert site.api.get(f"{INCIDENTS}/before")["spec"] == {"acknowledged": "ada"}
    # The aggregators of the next installation need not wait for the lease of the Job.
    assert not site.has(LEASE)


def test_it_can_be_installed_again(site: Cluster, release: Helm) -> None:
    site.until(lambda: not site.api.get(f"{SPACE}/pods")["items"] or _end_pods(site), "kube-apiserver")
    release("install", RELEASE, str(CHART), values=UNCHECKED)
    assert site.api.get(f"{INCIDENTS}/before")["spec"] == {"acknowledged": "ada"}


def _end_pods(site: Cluster) -> bool:
    """Delete the pods, which no kubelet ends."""
    site.api.delete(f"{SPACE}/pods")
    return False


def test_helm_takes_over_the_plain_manifests(new_cluster: NewCluster, tmp_path: Path) -> None:
    with new_cluster(API) as cluster:
        apply(cluster)
        helm = Helm(tmp_path, cluster)
        helm("install", RELEASE, str(CHART), "--take-ownership", "--force-conflicts", values=UNCHECKED)
        assert "STATUS: deployed" in helm("status", RELEASE)
        account = cluster.api.get(f"{SPACE}/serviceaccounts/{AGGREGATOR}")
        assert account["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "Helm"
