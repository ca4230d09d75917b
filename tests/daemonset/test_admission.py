"""The admission policies on a real API server: who changes marks, and what the aggregator changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from nodeguard.fleet.state.node_marks import encode_record
from nodeguard.model.mark import Mark, MarkCause, MarkRecord
from tests.controlplane.api import Api, ApiError, Object
from tests.controlplane.cluster import Cluster
from tests.controlplane.objects import node
from tests.daemonset.changes import (
    CORDONED,
    FOREIGN,
    FOREIGN_WRITES,
    HEALTHY,
    HOLD,
    MARK,
    MARK_CHANGES,
    OTHER_CHANGES,
    OWN_WRITES,
    STATE,
    Change,
    annotate,
    condition,
    taints,
)
from tests.daemonset.manifests import AGGREGATOR, NAMESPACE, token

pytestmark = pytest.mark.slow

NODES = "/api/v1/nodes"
RULES = "/apis/resource.k8s.io/v1/devicetaintrules"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"

POLICIES = ("nodeguard-marks", "nodeguard-device-marks", "nodeguard-writes", "nodeguard-objects")


@pytest.fixture(scope="module")
def installed(shared_manifests: Cluster) -> Cluster:
    created = shared_manifests
    add_accounts(created)
    mark_node(created, "probe")
    created.until(lambda: not is_admitted(created, "developer", taints(), "probe"), "kube-apiserver")
    created.until(
        lambda: not is_admitted(created, AGGREGATOR, OTHER_CHANGES["label"], "probe"), "kube-apiserver"
    )
    return created


def add_accounts(created: Cluster) -> None:
    """Add service accounts: a developer may patch Nodes and write DeviceTaintRules, an operator may change marks, too."""
    created.api.post(
        f"{RBAC}/clusterroles",
        {
            "metadata": {"name": "developer"},
            "rules": [
                {"apiGroups": [""], "resources": ["nodes", "nodes/status"], "verbs": ["get", "patch"]},
                {
                    "apiGroups": ["resource.k8s.io"],
                    "resources": ["devicetaintrules", "devicetaintrules/status"],
                    "verbs": ["create", "get", "patch", "delete"],
                },
            ],
        },
    )
    for account, roles in (("developer", ["developer"]), ("operator", ["developer", "nodeguard-operator"])):
        path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"
        created.api.post(path, {"metadata": {"name": account}})
        for role in roles:
            bind(created, account, role)


def bind(made: Cluster, account: str, role: str) -> None:
    subject = {"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
    binding = {"metadata": {"name": f"{account}-{role}"}, "roleRef": reference, "subjects": [subject]}
    made.api.post(f"{RBAC}/clusterrolebindings", binding)


def mark_node(made: Cluster, name: str) -> Any:
    """Create a Node that an aggregator has marked."""
    body = node(name)
    cause = MarkCause(Mark.QUARANTINE, "gpu-lost", "node", MARK["value"], since=1.0)
    record = encode_record(MarkRecord(causes=(cause,)))
    annotations = {STATE: record, "example.com/theirs": "x", "example.com/empty": ""}
    body["metadata"]["annotations"] = annotations
    body["spec"] = {"taints": [FOREIGN, MARK]}
    body["status"]["conditions"].append(HEALTHY)
    return made.api.post(NODES, body)


def client(made: Cluster, account: str, pod: str | None = None) -> Api:
    return Api(made.port, made.ca, token(made, account, pod))


def refusal(made: Cluster, account: str, change: Change, name: str, pod: str | None = None) -> str:
    """Return why a change is refused; empty where it is admitted. It is a dry run. pod: the pod with the token."""
    path = f"{NODES}/{name}{'/status' if change.status else ''}?dryRun=All"
    try:
        client(made, account, pod).patch(path, change.body, change.kind)
    except ApiError as error:
        return str(error)
    return ""


def is_admitted(made: Cluster, account: str, change: Change, name: str) -> bool:
    return not refusal(made, account, change, name)


@pytest.mark.parametrize("change", MARK_CHANGES.values(), ids=MARK_CHANGES)
def test_the_right_to_patch_nodes_does_not_include_marks(installed: Cluster, change: Change) -> None:
    assert "right `delete` on marks.nodeguard.dev" in refusal(installed, "developer", change, "probe")
    assert refusal(installed, "operator", change, "probe") == ""


@pytest.mark.parametrize("change", OTHER_CHANGES.values(), ids=OTHER_CHANGES)
def test_changes_that_leave_marks_are_admitted(installed: Cluster, change: Change) -> None:
    assert refusal(installed, "developer", change, "probe") == ""


def test_a_kubelet_updates_its_node_and_no_mark(installed: Cluster) -> None:
    kubelet = installed.kubelet("probe")
    path = f"{NODES}/probe/status?dryRun=All"
    heartbeat = OTHER_CHANGES["heartbeat"]
    assert kubelet.patch(path, heartbeat.body, heartbeat.kind)
    for name in ("state removed through the status", "condition changed"):
        change = MARK_CHANGES[name]
        with pytest.raises(ApiError, match="right `delete` on marks"):
            kubelet.patch(path, change.body, change.kind)


def test_a_new_node_brings_no_marks(installed: Cluster) -> None:
    kubelet = installed.kubelet("probe")
    marks = {
        "spec": {"taints": [MARK]},
        "metadata": {"name": "probe", "annotations": {STATE: "{}"}},
        "status": {"conditions": [HEALTHY]},
    }
    for section, fields in marks.items():
        with pytest.raises(ApiError, match="right `delete` on marks"):
            kubelet.post(f"{NODES}?dryRun=All", {"metadata": {"name": "probe"}, section: fields})
    # The API server asks the policies first, then whether the Node exists.
    with pytest.raises(ApiError, match="already exists"):
        kubelet.post(f"{NODES}?dryRun=All", {**node("probe"), "spec": {"taints": [FOREIGN]}})


def test_a_clean_node_gets_no_marks(installed: Cluster) -> None:
    installed.api.post(NODES, node("clean"))
    for change in (taints(MARK), annotate(state="{}"), annotate(epoch="7"), condition(**HEALTHY)):
        assert "right `delete` on marks.nodeguard.dev" in refusal(installed, "developer", change, "clean")
        assert refusal(installed, "operator", change, "clean") == ""
    installed.api.delete(f"{NODES}/clean")


def test_a_service_account_on_a_node_changes_no_marks(installed: Cluster) -> None:
    # The token of a pod names its Node: it is no kubelet's, and has the rights of a DaemonSet's account.
    spec = {
        "serviceAccountName": "developer",
        "nodeName": "probe",
        "containers": [{"name": "a", "image": "a"}],
    }
    installed.api.post(f"/api/v1/namespaces/{NAMESPACE}/pods", {"metadata": {"name": "local"}, "spec": spec})
    for change in MARK_CHANGES.values():
        assert "right `delete`" in refusal(installed, "developer", change, "probe", "local")
    assert refusal(installed, "developer", OTHER_CHANGES["another taint"], "probe", "local") == ""
    installed.api.delete(f"/api/v1/namespaces/{NAMESPACE}/pods/local")


@pytest.mark.parametrize("change", OWN_WRITES.values(), ids=OWN_WRITES)
def test_the_aggregator_writes_marks(installed: Cluster, change: Change) -> None:
    assert refusal(installed, AGGREGATOR, change, "probe") == ""


@pytest.mark.parametrize("change", FOREIGN_WRITES.values(), ids=FOREIGN_WRITES)
def test_the_aggregator_writes_nothing_else(installed: Cluster, change: Change) -> None:
    assert "the aggregator of nodeguard" in refusal(installed, AGGREGATOR, change, "probe")


def cordoned(made: Cluster, name: str, state: str) -> None:
    """Create a Node with a cordon, a record and a hold."""
    body = node(name)
    body["metadata"]["annotations"] = {STATE: state, HOLD: "ada"}
    body["spec"] = {"unschedulable": True}
    made.api.post(NODES, body)


UNCORDON = Change({"spec": {"unschedulable": None}})


def test_the_aggregator_undoes_no_decision_of_an_operator(installed: Cluster) -> None:
    cordoned(installed, "theirs", "{}")
    changes = (
        UNCORDON,
        annotate(state=CORDONED),
        Change({**annotate(state=CORDONED).body, **UNCORDON.body}),
        annotate(hold=None),
        annotate(hold="bob"),
    )
    for change in changes:
        assert "the aggregator of nodeguard" in refusal(installed, AGGREGATOR, change, "theirs")
    assert refusal(installed, AGGREGATOR, annotate(state='{"causes":[]}'), "theirs") == ""
    installed.api.delete(f"{NODES}/theirs")


def test_the_aggregator_removes_its_own_cordon(installed: Cluster) -> None:
    cordoned(installed, "ours", CORDONED)
    for state in (None, "{}"):
        change = Change({**annotate(state=state).body, **UNCORDON.body})
        assert refusal(installed, AGGREGATOR, change, "ours") == ""
    installed.api.delete(f"{NODES}/ours")


def test_the_aggregator_cordons_only_with_the_right_to(installed: Cluster) -> None:
    change = Change({**annotate(state=CORDONED).body, "spec": {"unschedulable": True}})
    assert "markWith: {cordon: true}" in refusal(installed, AGGREGATOR, change, "probe")
    rules = [{"apiGroups": ["nodeguard.dev"], "resources": ["cordons"], "verbs": ["create"]}]
    installed.api.post(f"{RBAC}/clusterroles", {"metadata": {"name": "cordons"}, "rules": rules})
    bind(installed, AGGREGATOR, "cordons")
    installed.until(lambda: refusal(installed, AGGREGATOR, change, "probe") == "", "kube-apiserver")
    installed.api.delete(f"{RBAC}/clusterrolebindings/{AGGREGATOR}-cordons")
    installed.api.delete(f"{RBAC}/clusterroles/cordons")


def test_the_aggregator_creates_only_its_own_objects(installed: Cluster) -> None:
    aggregator = client(installed, AGGREGATOR)
    space = f"/api/v1/namespaces/{NAMESPACE}"
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
    of_account = {
        "metadata": {
            "name": "nodeguard-ca",
            "annotations": {"kubernetes.io/service-account.name": "developer"},
        },
        "type": "kubernetes.io/service-account-token",
    }
    refused: tuple[tuple[str, Object], ...] = (
        (f"{space}/secrets", {"metadata": {"name": "other"}}),
        (f"{space}/secrets", {"metadata": {"generateName": "nodeguard-ca"}}),
        (f"{space}/secrets", of_account),
        (f"{space}/configmaps", {"metadata": {"name": "nodeguard-policy"}}),
        (leases, {"metadata": {"name": "other"}}),
    )
    for path, body in refused:
        with pytest.raises(ApiError, match="the aggregator of nodeguard creates only"):
            aggregator.post(f"{path}?dryRun=All", body)
    for path, name in (
        (f"{space}/secrets", "nodeguard-ca"),
        (f"{space}/configmaps", "nodeguard-ca"),
        (f"{space}/configmaps", "nodeguard-decisions"),
        (leases, AGGREGATOR),
    ):
        assert aggregator.post(f"{path}?dryRun=All", {"metadata": {"name": name}})


def rule(name: str, key: str, labels: dict[str, str], owner: Any = None) -> Object:
    references = (
        [{"apiVersion": "v1", "kind": "Node", "name": owner["name"], "uid": owner["uid"]}] if owner else []
    )
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceTaintRule",
        "metadata": {"name": name, "labels": labels, "ownerReferences": references},
        "spec": {
            "deviceSelector": {"driver": "gpu.nvidia.com", "pool": "probe", "device": "gpu-0"},
            "taint": {"key": key, "value": "gpu", "effect": "NoSchedule"},
        },
    }


OWN = {"app.kubernetes.io/managed-by": "nodeguard"}


def test_marks_on_devices_have_the_same_protection(installed: Cluster) -> None:
    aggregator, developer = client(installed, AGGREGATOR), client(installed, "developer")
    aggregator.post(RULES, rule("ours", "nodeguard.dev/quarantine", OWN))
    developer.post(RULES, rule("theirs", "example.com/broken", {}))
    calls: tuple[Callable[[], object], ...] = (
        lambda: developer.delete(f"{RULES}/ours"),
        lambda: developer.post(RULES, rule("forged", "nodeguard.dev/quarantine", OWN)),
        lambda: developer.patch(f"{RULES}/theirs", {"metadata": {"labels": OWN}}),
        lambda: developer.patch(f"{RULES}/ours", {"metadata": {"annotations": {STATE: "{}"}}}),
        lambda: developer.patch(f"{RULES}/ours", {"spec": {"taint": {"value": "other"}}}),
        lambda: developer.patch(f"{RULES}/ours", {"metadata": {"labels": {next(iter(OWN)): None}}}),
        lambda: aggregator.delete(f"{RULES}/theirs"),
        lambda: aggregator.patch(f"{RULES}/theirs", {"metadata": {"labels": OWN}}),
        lambda: aggregator.post(RULES, rule("another", "example.com/broken", OWN)),
    )
    for call in calls:
        with pytest.raises(ApiError, match="nodeguard") as refused:
            call()
        assert refused.value.code == 403
    # Kubernetes itself writes the status, and others may add what is theirs.
    developer.patch(f"{RULES}/ours", {"metadata": {"annotations": {"example.com/seen": "x"}}})
    developer.patch(f"{RULES}/ours/status", {"status": {"conditions": []}})
    developer.delete(f"{RULES}/theirs")
    client(installed, "operator").delete(f"{RULES}/ours")


def test_the_rules_of_a_deleted_node_are_collected(installed: Cluster) -> None:
    owner = mark_node(installed, "short-lived")["metadata"]
    installed.api.post(RULES, rule("orphan", "nodeguard.dev/quarantine", OWN, owner))
    installed.api.post(RULES, rule("other", "nodeguard.dev/quarantine", OWN))
    installed.api.delete(f"{NODES}/short-lived")
    installed.until(lambda: not installed.has(f"{RULES}/orphan"), "kube-controller-manager")
    assert installed.has(f"{RULES}/other")
    installed.api.delete(f"{RULES}/other")


def test_the_expressions_match_the_types_of_the_api(installed: Cluster) -> None:
    for name in POLICIES:
        path = f"{ADMISSION}/validatingadmissionpolicies/{name}"

        def status(path: str = path) -> Any:
            policy = installed.api.get(path)
            current = policy.get("status", {})
            return current if current.get("observedGeneration") == policy["metadata"]["generation"] else None

        checked = installed.until(status, "kube-controller-manager")
        assert checked.get("typeChecking", {}).get("expressionWarnings", []) == []


def test_without_the_bindings_every_change_is_admitted(installed: Cluster) -> None:
    # The documented way out, if the policies prevent work in an emergency.
    installed.kubectl("delete", "validatingadmissionpolicybinding", *POLICIES)
    installed.until(lambda: is_admitted(installed, "developer", taints(), "probe"), "kube-apiserver")
    assert refusal(installed, AGGREGATOR, OTHER_CHANGES["label"], "probe") == ""
