"""Reads the objects that the checks of a cluster need, with the rights of the user."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, TypeVar

from msgspec import Struct, field

from nodeguard.doctor.cluster import AGGREGATOR
from nodeguard.doctor.cluster_objects import (
    ClusterNode,
    ClusterObjects,
    ConfigTexts,
    TolerationSpec,
    Workload,
)
from nodeguard.doctor.neighbours import DESCHEDULER, MONITOR
from nodeguard.kube.client import ApiClient
from nodeguard.kube.errors import ApiError
from nodeguard.kube.incident_object import VERSION
from nodeguard.kube.incident_schema import FieldSchema, schema_fields
from nodeguard.kube.objects import TypedObject
from nodeguard.kube.reading import Right, get_object, has_right, list_objects
from nodeguard.model.node import Taint

_GPU = "nvidia.com/gpu"
_COUNT = re.compile(r"[0-9]{1,4}")

# The keys of the policy that place nodes in failure domains.
_LOCATIONS = re.compile(r"^(nodeLocations|topologies):", re.MULTILINE)

# Stands for the namespace of nodeguard.
OWN_NAMESPACE = "."

# Rights that the aggregator needs: verb, API group, resource, namespace (empty for all). Events about Nodes
# are in `default`.
RIGHTS = (
    ("list", "", "nodes", ""),
    ("watch", "", "nodes", ""),
    ("patch", "", "nodes", ""),
    ("patch", "", "nodes/status", ""),
    ("list", "nodeguard.dev", "nodeincidents", ""),
    ("create", "nodeguard.dev", "nodeincidents", ""),
    ("patch", "nodeguard.dev", "nodeincidents/status", ""),
    ("create", "nodeguard.dev", "nodeactions", OWN_NAMESPACE),
    ("update", "nodeguard.dev", "nodeactions/status", OWN_NAMESPACE),
    ("create", "coordination.k8s.io", "leases", OWN_NAMESPACE),
    ("create", "", "events", OWN_NAMESPACE),
    ("create", "", "events", "default"),
)

_Schema = TypeVar("_Schema")


class _Container(Struct):
    image: str = ""
    command: list[str] = []
    args: list[str] = []


class _PodSpec(Struct):
    containers: list[_Container] = []
    tolerations: list[TolerationSpec] = []


class _PodTemplate(Struct):
    spec: _PodSpec = field(default_factory=_PodSpec)


class _WorkloadSpec(Struct):
    template: _PodTemplate = field(default_factory=_PodTemplate)
    replicas: int = 0


class _JobSpec(Struct):
    spec: _WorkloadSpec = field(default_factory=_WorkloadSpec)


class _CronJobSpec(Struct):
    job: _JobSpec = field(name="jobTemplate", default_factory=_JobSpec)


class _CronJob(TypedObject):
    spec: _CronJobSpec = field(default_factory=_CronJobSpec)


class _WorkloadStatus(Struct):
    desired: int = field(name="desiredNumberScheduled", default=0)
    number_ready: int = field(name="numberReady", default=0)
    ready_replicas: int = field(name="readyReplicas", default=0)
    replicas: int = 0
    updated_replicas: int = field(name="updatedReplicas", default=0)
    updated_number: int = field(name="updatedNumberScheduled", default=0)


class _WorkloadObject(TypedObject):
    spec: _WorkloadSpec = field(default_factory=_WorkloadSpec)
    status: _WorkloadStatus = field(default_factory=_WorkloadStatus)


class _NodeStatus(Struct):
    allocatable: dict[str, str] = {}


class _NodeSpec(Struct):
    taints: list[Taint] = []


class _NodeObject(TypedObject):
    spec: _NodeSpec = field(default_factory=_NodeSpec)
    status: _NodeStatus = field(default_factory=_NodeStatus)


class _ConfigMap(Struct):
    data: dict[str, str] = {}


class _DefinitionSchema(Struct):
    root: dict[str, Any] = field(name="openAPIV3Schema", default_factory=dict)


class _DefinitionVersion(Struct):
    name: str
    served: bool = False
    schema: _DefinitionSchema = field(default_factory=_DefinitionSchema)


class _DefinitionSpec(Struct):
    versions: list[_DefinitionVersion] = []


class _Definition(Struct):
    spec: _DefinitionSpec = field(default_factory=_DefinitionSpec)


class _Version(Struct):
    minor: str = ""


async def read_cluster(client: ApiClient, namespace: str) -> ClusterObjects:
    """Return the objects of a cluster. namespace: of nodeguard. Raises ApiError."""
    daemonsets, deployments = [
        [_workload(item) async for item in list_objects(client, f"/apis/apps/v1/{kind}", _WorkloadObject)]
        for kind in ("daemonsets", "deployments")
    ]
    nodes = [_node(item) async for item in list_objects(client, "/api/v1/nodes", _NodeObject)]
    jobs = [
        _workload(_WorkloadObject(item.metadata, item.spec.job.spec))
        async for item in list_objects(client, "/apis/batch/v1/cronjobs", _CronJob)
    ]
    deschedulers = {item.namespace for item in (*deployments, *jobs) if item.runs(DESCHEDULER)}
    monitors = {item.namespace for item in (*daemonsets, *deployments) if item.runs(MONITOR)}
    return ClusterObjects(
        namespace=namespace,
        minor_version=await _minor_version(client),
        incident_fields=await _served_fields(client, "nodeincidents"),
        action_fields=await _served_fields(client, "nodeactions"),
        daemonsets=tuple(daemonsets),
        deployments=tuple(deployments),
        cronjobs=tuple(jobs),
        nodes=tuple(nodes),
        missing_rights=await _missing_rights(client, namespace),
        has_locations=await _has_locations(client, namespace),
        descheduler_policies=await _config_texts(client, deschedulers, "DeschedulerPolicy"),
        monitor_configs=await _config_texts(client, monitors),
    )


def _workload(item: _WorkloadObject) -> Workload:
    pod = item.spec.template.spec
    desired = item.status.desired or item.spec.replicas
    updated = item.status.updated_number or item.status.updated_replicas
    return Workload(
        namespace=item.metadata.namespace,
        name=item.metadata.name,
        words=tuple(word for container in pod.containers for word in (*container.command, *container.args)),
        images=tuple(container.image for container in pod.containers),
        tolerations=tuple(pod.tolerations),
        desired=desired,
        ready=item.status.number_ready or item.status.ready_replicas,
        # A Deployment may have more pods than desired while it replaces them.
        is_updating=updated < desired or item.status.replicas > desired,
    )


def _node(item: _NodeObject) -> ClusterNode:
    gpus = item.status.allocatable.get(_GPU, "0")
    return ClusterNode(
        name=item.metadata.name,
        labels=item.metadata.labels,
        gpus=int(gpus) if _COUNT.fullmatch(gpus) else 0,
        annotations=item.metadata.annotations,
        taints=tuple(item.spec.taints),
    )


async def _minor_version(client: ApiClient) -> int:
    digits = re.match(r"[0-9]{1,4}", (await get_object(client, "/version", _Version)).minor)
    return int(digits[0]) if digits else 0


async def _served_fields(client: ApiClient, plural: str) -> dict[str, FieldSchema] | None:
    """Return the served schema of a custom resource by path; None if the version is not served."""
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{plural}.nodeguard.dev"
    try:
        definition = await get_object(client, path, _Definition)
    except ApiError as error:
        if error.status == 404:
            return None
        raise
    served = (item for item in definition.spec.versions if item.served and item.name == VERSION)
    return next((schema_fields(item.schema.root) for item in served), None)


async def _has_locations(client: ApiClient, namespace: str) -> bool:
    """Return whether the policy in the cluster defines where nodes are; false if it cannot be read."""
    path = f"/api/v1/namespaces/{namespace}/configmaps/nodeguard-policy"
    try:
        policy = await get_object(client, path, _ConfigMap)
    except ApiError as error:
        if error.status in {403, 404}:
            return False
        raise
    return any(_LOCATIONS.search(text) for text in policy.data.values())


async def _missing_rights(client: ApiClient, namespace: str) -> tuple[str, ...] | None:
    """Return the rights that the aggregator lacks; None if this user may not ask."""
    user = f"system:serviceaccount:{namespace}:{AGGREGATOR}"
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
    missing = []
    for verb, group, resource, scope in RIGHTS:
        right = Right(verb, group, resource, namespace if scope == OWN_NAMESPACE else scope)
        try:
            is_allowed = await has_right(client, right, user, groups)
        except ApiError as error:
            if error.status == 403:
                return None
            raise
        if not is_allowed:
            missing.append(f"{verb} {resource}{f' in {right.namespace}' if right.namespace else ''}")
    return tuple(missing)


async def _config_texts(client: ApiClient, namespaces: Iterable[str], word: str = "") -> ConfigTexts:
    """Return the texts with a word of all ConfigMaps of these namespaces."""
    texts: list[str] = []
    forbidden = []
    for namespace in sorted(namespaces):
        try:
            async for item in list_objects(client, f"/api/v1/namespaces/{namespace}/configmaps", _ConfigMap):
                texts.extend(text for text in item.data.values() if word in text)
        except ApiError as error:
            if error.status != 403:
                raise
            forbidden.append(namespace)
    return ConfigTexts(tuple(texts), tuple(forbidden))
