"""Kueue's Topologies as declarations of the topology `fabric`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
import yaml

from nodeguard.kube.client import ApiClient
from nodeguard.kube.kueue_topologies import (
    API_GROUPS,
    KueueTopology,
    KueueTopologyWatch,
    decode_topology,
    served_path,
)
from nodeguard.model.policy import TopologyLabels
from tests.controlplane.api import Object
from tests.controlplane.cluster import Cluster
from tests.controlplane.programs import KUEUE
from tests.daemonset.manifests import is_served
from tests.logs import LogLines
from tests.waiting import in_background, until_async

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
DEFINITION = f"{DEFINITIONS}/topologies.kueue.x-k8s.io"
V1BETA2, V1BETA1 = (f"{group}/topologies" for group in API_GROUPS)


def definition(**served_versions: bool) -> Object:
    """Return Kueue's own definition with the versions that are served."""
    bases = KUEUE.directory() / "manifests" / "sigs.k8s.io" / "kueue" / "crd" / "bases"
    body: Object = yaml.safe_load((bases / "kueue.x-k8s.io_topologies.yaml").read_text())
    for version in body["spec"]["versions"]:
        version["served"] = served_versions.get(version["name"], True)
    return body


def topology(name: str, *labels: str) -> Object:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Topology",
        "metadata": {"name": name},
        "spec": {"levels": [{"nodeLabel": label} for label in labels]},
    }


@pytest.fixture
def kueue(controlplane: Cluster) -> Iterator[Cluster]:
    """A control plane without Kueue's Topologies; a test may define them."""
    yield controlplane
    _undefine(controlplane)


def _define(cluster: Cluster, **served_versions: bool) -> None:
    cluster.api.post(DEFINITIONS, definition(**served_versions))
    first = next(path for path in (V1BETA2, V1BETA1) if served_versions.get(path.split("/")[3], True))
    cluster.until(lambda: is_served(cluster, first), "kube-apiserver")


def _undefine(cluster: Cluster) -> None:
    if cluster.has(DEFINITION):
        cluster.api.delete(DEFINITION)
        cluster.until(lambda: not cluster.has(DEFINITION), "kube-apiserver")


@asynccontextmanager
async def following(api: ApiClient) -> AsyncIterator[list[tuple[TopologyLabels, ...]]]:
    reported: list[tuple[TopologyLabels, ...]] = []
    async with in_background(KueueTopologyWatch(api, reported.append, recheck_seconds=0.1).run()):
        yield reported


def test_the_level_of_the_node_itself_is_omitted() -> None:
    named = topology("t", "cloud/block", "cloud/rack", "kubernetes.io/hostname")
    named["metadata"] |= {"uid": "u", "resourceVersion": "1"}
    assert decode_topology(json.dumps(named).encode()) == KueueTopology(
        "u", "1", "t", ("cloud/block", "cloud/rack")
    )


async def test_changed_topologies_are_reported(api: ApiClient, kueue: Cluster, log: LogLines) -> None:
    _define(kueue)
    control = kueue.api
    control.post(V1BETA2, topology("b", "cloud/block", "cloud/rack", "kubernetes.io/hostname"))
    control.post(V1BETA2, topology("a", "old/rack"))
    control.post(V1BETA2, topology("nodes", "kubernetes.io/hostname"))
    async with following(api) as reported:
        both = (
            TopologyLabels("fabric", ("old/rack",)),
            TopologyLabels("fabric", ("cloud/block", "cloud/rack")),
        )
        await until_async(lambda: reported and reported[-1] == both)
        control.delete(f"{V1BETA2}/a")
        await until_async(lambda: reported[-1] == both[1:])
        control.post(V1BETA2, topology("again", "cloud/block", "cloud/rack"))
        control.post(V1BETA2, topology("z", "new/rack"))
        await until_async(lambda: reported[-1] == (both[1], TopologyLabels("fabric", ("new/rack",))))
    assert log.text() == []


async def test_kueue_is_discovered_and_its_removal_detected(api: ApiClient, kueue: Cluster) -> None:
    assert not await served_path(api)
    async with following(api) as reported:
        await asyncio.sleep(0.3)
        assert reported == []
        _define(kueue)
        kueue.api.post(V1BETA2, topology("a", "rack"))
        await until_async(lambda: reported == [(TopologyLabels("fabric", ("rack",)),)])
        _undefine(kueue)
        await until_async(lambda: reported[-1] == ())


async def test_an_older_api_version_of_kueue_is_used(api: ApiClient, kueue: Cluster) -> None:
    _define(kueue, v1beta2=False)
    assert await served_path(api) == V1BETA1
