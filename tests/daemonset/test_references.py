"""Each object that a manifest refers to is in the manifests, built in, created by the aggregator, or optional."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import pytest
import yaml

from nodeguard import __version__
from nodeguard.aggregator.backends.kubernetes import LEASE_NAME
from nodeguard.aggregator.backends.kubernetes_actions import DECISIONS_NAME
from nodeguard.kube.text_store import CONFIG_MAP_NAME, SECRET_NAME
from tests.controlplane.api import Object
from tests.daemonset.manifests import AGENT, AGGREGATOR, DAEMONSET, FILL, NAMESPACE, documents
from tests.daemonset.pods import container, pod

WORKLOADS = pytest.mark.parametrize(("kind", "name"), [("DaemonSet", AGENT), ("Deployment", AGGREGATOR)])

Reference = tuple[str, str, str]  # kind, namespace, name; namespace is empty where the kind has none

CLUSTER_SCOPED = {
    *("Namespace", "CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding"),
    *("FlowSchema", "PriorityLevelConfiguration"),
    *("MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"),
    *("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
}
# Built-in priority classes and namespaces.
BUILT_IN = {
    ("PriorityClass", "", "system-node-critical"),
    ("PriorityClass", "", "system-cluster-critical"),
    ("Namespace", "", "default"),
}
# Objects that the aggregator creates at its first start.
CREATED = {
    ("Secret", NAMESPACE, SECRET_NAME),
    ("ConfigMap", NAMESPACE, CONFIG_MAP_NAME),
    ("ConfigMap", NAMESPACE, DECISIONS_NAME),
    ("Lease", NAMESPACE, LEASE_NAME),
}


def everything() -> list[Object]:
    """Every object of the manifests, including the optional ones."""
    optional = chain.from_iterable(
        yaml.safe_load_all(file.read_text()) for file in sorted(FILL.glob("*.yaml"))
    )
    return [*documents(), *optional]


def identity(made: Object) -> Reference:
    kind, name = made["kind"], made["metadata"]["name"]
    return kind, "" if kind in CLUSTER_SCOPED else made["metadata"]["namespace"], name


def references(made: Object) -> Iterator[Reference]:
    """The objects that an object refers to and needs."""
    namespace = made["metadata"].get("namespace", "")
    if namespace:
        yield "Namespace", "", namespace
    match made["kind"]:
        case "RoleBinding" | "ClusterRoleBinding":
            role = made["roleRef"]
            yield role["kind"], namespace if role["kind"] == "Role" else "", role["name"]
            yield from (_subject(subject) for subject in made["subjects"])
        case "FlowSchema":
            yield "PriorityLevelConfiguration", "", made["spec"]["priorityLevelConfiguration"]["name"]
            for rule in made["spec"]["rules"]:
                yield from (_subject(subject["serviceAccount"]) for subject in rule["subjects"])
        case "MutatingAdmissionPolicyBinding" | "ValidatingAdmissionPolicyBinding" as binding:
            yield binding.removesuffix("Binding"), "", made["spec"]["policyName"]
        case "ResourceQuota":
            for scope in made["spec"]["scopeSelector"]["matchExpressions"]:
                yield from ((scope["scopeName"], "", name) for name in scope["values"])
        case "DaemonSet" | "Deployment":
            yield from _of_pod(made["spec"]["template"]["spec"], namespace)


def _subject(account: Object) -> Reference:
    return "ServiceAccount", account["namespace"], account["name"]


def _of_pod(spec: Any, namespace: str) -> Iterator[Reference]:
    yield "ServiceAccount", namespace, spec["serviceAccountName"]
    yield "PriorityClass", "", spec["priorityClassName"]
    for volume in spec["volumes"]:
        for source in (volume, *volume.get("projected", {}).get("sources", ())):
            named = source.get("configMap")
            if named and not named.get("optional"):
                yield "ConfigMap", namespace, named["name"]
            assert "secret" not in source


@pytest.mark.parametrize("made", everything(), ids=lambda made: "/".join(filter(None, identity(made))))
def test_references_exist(made: Object) -> None:
    existing = {*map(identity, everything()), *BUILT_IN, *CREATED}
    assert set(references(made)) - existing == set()


def test_the_aggregator_has_the_rights_to_create_its_objects() -> None:
    [rules] = [made["rules"] for made in documents() if identity(made) == ("Role", NAMESPACE, AGGREGATOR)]
    for kind, _, name in CREATED:
        resource = f"{kind.lower()}s"
        granted = [rule for rule in rules if resource in rule["resources"]]
        assert any("create" in rule["verbs"] and "resourceNames" not in rule for rule in granted)
        named = [rule for rule in granted if name in rule.get("resourceNames", ())]
        verbs = {verb for rule in named for verb in rule["verbs"]}
        # The authority is created, and never changed.
        assert verbs & {"patch", "update"} or (kind == "Secret" and verbs == {"get"})


def test_rules_name_only_objects_that_are_created() -> None:
    rules = [rule for made in documents() if made["kind"] == "Role" for rule in made["rules"]]
    named = {name for rule in rules for name in rule.get("resourceNames", ())}
    assert named == {name for _, _, name in CREATED}


def test_every_selector_selects_the_pods_of_one_workload() -> None:
    workloads = [made for made in documents() if made["kind"] in {"DaemonSet", "Deployment"}]
    selectors = [made["spec"]["selector"] for made in documents() if "selector" in made.get("spec", {})]
    spread = [
        constraint["labelSelector"]
        for constraint in pod("Deployment", AGGREGATOR)["topologySpreadConstraints"]
    ]
    for selector in (*selectors, *spread):
        labels = selector.get("matchLabels", selector)
        selected = [
            workload["metadata"]["name"]
            for workload in workloads
            if labels.items() <= workload["spec"]["template"]["metadata"]["labels"].items()
        ]
        assert len(selected) == 1, labels


def test_images_of_the_kustomization_are_those_of_the_pods() -> None:
    images = yaml.safe_load((DAEMONSET / "kustomization.yaml").read_text())["images"]
    used = {container("DaemonSet", AGENT)["image"], container("Deployment", AGGREGATOR)["image"]}
    assert {f"{image['name']}:{image['newTag']}" for image in images} == used
    assert {image["newTag"] for image in images} == {__version__}
    assert all(image["newName"] == f"REGISTRY/{image['name']}" for image in images)


@WORKLOADS
def test_every_volume_is_mounted_once_and_every_mount_has_a_volume(kind: str, name: str) -> None:
    mounts = [mount["name"] for mount in container(kind, name)["volumeMounts"]]
    assert sorted(mounts) == sorted(volume["name"] for volume in pod(kind, name)["volumes"])
