"""PodGroups: their disruption mode and their pods, also of a real API server that has gangs."""

from __future__ import annotations

import json
from collections.abc import Iterator

import msgspec
import pytest

from nodeguard.kube import eviction
from nodeguard.kube.client import ApiClient
from nodeguard.kube.pod_group import decode_leaves_whole
from nodeguard.model.eviction import PodReadError
from nodeguard.model.pod import NodePod, PodGroupKey
from tests.controlplane.api import Object
from tests.controlplane.cluster import API, Cluster, NewCluster
from tests.controlplane.commands import GANGS
from tests.controlplane.objects import pod
from tests.kube.real_pods import PODS, drain_cluster

GROUPS = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups"
ALL: Object = {"disruptionMode": {"all": {}}}
TRAIN, SERVE = PodGroupKey("default", "train"), PodGroupKey("default", "serve")
RANKS = [f"train-{number}" for number in range(5)]


def body(spec: Object) -> bytes:
    return json.dumps({"metadata": {"name": "g", "uid": "u", "resourceVersion": "1"}, "spec": spec}).encode()


@pytest.mark.parametrize(
    ("spec", "is_whole"), [({}, False), ({"disruptionMode": {"single": {}}}, False), (ALL, True)]
)
def test_only_the_mode_all_leaves_whole(spec: Object, is_whole: bool) -> None:
    assert decode_leaves_whole(body(spec)) is is_whole


@pytest.mark.parametrize("mode", [{"most": {}}, {"all": {}, "most": {}}])
def test_a_mode_of_a_later_version_is_an_error(mode: Object) -> None:
    with pytest.raises(msgspec.ValidationError, match="most is neither single nor all"):
        decode_leaves_whole(body({"disruptionMode": mode}))


@pytest.fixture(scope="module")
def gangs(new_cluster: NewCluster) -> Iterator[Cluster]:
    """An API server with two PodGroups, and their pods on three nodes."""
    with new_cluster(API, {"kube-apiserver": GANGS["kube-apiserver"]}) as cluster:
        cluster.api.post("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
        for name, mode in (("train", ALL), ("serve", {})):
            policy = {"schedulingPolicy": {"gang": {"minCount": 2}}}
            cluster.api.post(GROUPS, {"metadata": {"name": name}, "spec": {**policy, **mode}})
        for number, name in enumerate(RANKS):
            create(cluster, name, "train", f"gpu-{number % 3}" if number else "")
        create(cluster, "serve-0", "serve", "gpu-1")
        create(cluster, "done", "train", "gpu-1")
        cluster.api.patch(f"{PODS}/done/status", {"status": {"phase": "Succeeded"}})
        yield cluster


def create(cluster: Cluster, name: str, group: str, host: str) -> None:
    created = pod(name)
    created["spec"] |= {"schedulingGroup": {"podGroupName": group}, **({"nodeName": host} if host else {})}
    cluster.api.post(PODS, created)


def names(pods: tuple[NodePod, ...]) -> list[str]:
    return sorted(found.key.name for found in pods)


@pytest.mark.cluster
@pytest.mark.parametrize("page", [500, 2])
async def test_the_unfinished_pods_of_a_group_are_read_on_all_nodes_page_by_page(
    gangs: Cluster, monkeypatch: pytest.MonkeyPatch, page: int
) -> None:
    monkeypatch.setattr(eviction, "_PAGE", page)
    api = await ApiClient.connect(str(gangs.kubeconfig))
    try:
        drain = drain_cluster(api)
        assert names(await drain.group_pods([TRAIN])) == RANKS
        assert names(await drain.group_pods([TRAIN, SERVE])) == ["serve-0", *RANKS]
        assert await drain.group_pods([PodGroupKey("team-b", "train")]) == ()
        assert await drain.group_pods([]) == ()
        [local] = await drain.node_pods("gpu-2")
        assert (local.key.name, local.group) == ("train-2", TRAIN)
    finally:
        await api.close()


@pytest.mark.cluster
async def test_the_mode_of_a_group_is_read_or_the_reason_is_named(gangs: Cluster) -> None:
    api = await ApiClient.connect(str(gangs.kubeconfig))
    try:
        drain = drain_cluster(api)
        assert await drain.leaves_whole(TRAIN)
        assert not await drain.leaves_whole(SERVE)
        missing = "it is not known whether PodGroup default/gone leaves whole: .*404"
        with pytest.raises(PodReadError, match=missing):
            await drain.leaves_whole(PodGroupKey("default", "gone"))
    finally:
        await api.close()
    without = await ApiClient.connect(str(gangs.kubeconfig), headers=[("Impersonate-User", "ann")])
    try:
        remedy = "as the manifests do with the value policy.drain.mode: observe or enforce"
        with pytest.raises(PodReadError, match=f"podgroups.*{remedy}"):
            await drain_cluster(without).leaves_whole(TRAIN)
        with pytest.raises(PodReadError, match=f"pods.*{remedy}"):
            await drain_cluster(without).group_pods([TRAIN])
    finally:
        await without.close()
