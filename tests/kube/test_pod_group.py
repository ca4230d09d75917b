"""PodGroups: their disruption mode and their pods, also of a real API server that has gangs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

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


def create(cluster: Cluster, name: str, group: str, host: str, labels: Object | None = None) -> None:
    created = pod(name, labels=labels)
    created["spec"] |= {"schedulingGroup": {"podGroupName": group}, **({"nodeName": host} if host else {})}
    cluster.api.post(PODS, created)


@pytest.mark.cluster
@pytest.mark.parametrize("is_labelled", [True, False])
async def test_the_pods_of_a_group_that_a_job_has_created_are_selected_by_its_uid(
    gangs: Cluster, monkeypatch: pytest.MonkeyPatch, is_labelled: bool
) -> None:
    """A Job with manualSelector does not label its pods: then all pods of the namespace are read."""
    group = f"sweep-{is_labelled}".lower()
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "sweep", "uid": "uid-7", "controller": True}
    spec = {"schedulingPolicy": {"gang": {"minCount": 2}}, **ALL}
    gangs.api.post(GROUPS, {"metadata": {"name": group, "ownerReferences": [owner]}, "spec": spec})
    labels = {"batch.kubernetes.io/controller-uid": "uid-7"} if is_labelled else {}
    for number in range(2):
        create(gangs, f"sweep-{number}", group, "gpu-1", labels)
    api = await ApiClient.connect(str(gangs.kubeconfig))
    lists = count_pods(api, monkeypatch)
    try:
        found = await drain_cluster(api).group_pods([PodGroupKey("default", group), TRAIN])
        assert names(found) == ["sweep-0", "sweep-1", *RANKS]
        assert lists == ([2, 8] if is_labelled else [0, 8])
    finally:
        await api.close()
        for number in range(2):
            gangs.api.delete(f"{PODS}/sweep-{number}")


def count_pods(api: ApiClient, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the number of pods of each list that is read from now on."""
    lists, request = list[int](), api.request

    async def counted(method: str, path: str, **more: Any) -> bytes:
        response = await request(method, path, **more)
        if path == PODS:
            lists.append(len(json.loads(response)["items"]))
        return response

    monkeypatch.setattr(api, "request", counted)
    return lists


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
@pytest.mark.parametrize(("page", "reads"), [(500, [7]), (2, [1, 1, 1, 0])], ids=["small", "large"])
async def test_few_pods_of_a_group_in_a_large_namespace_are_read_one_by_one(
    gangs: Cluster, monkeypatch: pytest.MonkeyPatch, page: int, reads: list[int]
) -> None:
    monkeypatch.setattr(eviction, "_PAGE", page)
    api = await ApiClient.connect(str(gangs.kubeconfig))
    create(gangs, "leaver", "train", "gpu-1")
    create(gangs, "again", "train", "gpu-1")
    try:
        drain = drain_cluster(api)
        before = {pod.key.name: pod.key for pod in await drain.group_pods([TRAIN])}
        needed = [before[name] for name in ("train-1", "train-2", "again", "leaver")]
        for name in ("leaver", "again"):
            gangs.api.delete(f"{PODS}/{name}")
        create(gangs, "again", "train", "gpu-1")
        lists = count_pods(api, monkeypatch)
        found = {pod.key for pod in await drain.group_pods([TRAIN], needed)}
        assert found.intersection(needed) == {before["train-1"], before["train-2"]}
        assert sorted(lists, reverse=True) == reads
    finally:
        await api.close()
        gangs.api.delete(f"{PODS}/again")


@pytest.mark.cluster
async def test_a_page_that_is_too_large_is_read_with_fewer_pods(
    gangs: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = [len(json.dumps(item)) for item in gangs.api.get(PODS)["items"]]
    api = await ApiClient.connect(str(gangs.kubeconfig))
    try:
        drain = drain_cluster(api)
        monkeypatch.setattr(eviction, "_MAX_BYTES", 3 * max(sizes))
        assert names(await drain.group_pods([TRAIN])) == RANKS
        monkeypatch.setattr(eviction, "_MAX_BYTES", min(sizes) // 2)
        with pytest.raises(PodReadError, match="exceeds nodeguard's size limit"):
            await drain.group_pods([TRAIN])
    finally:
        await api.close()


@pytest.mark.cluster
async def test_a_claim_of_an_earlier_group_of_the_same_name_is_not_that_of_its_pods(gangs: Cluster) -> None:
    resources, host = "/apis/resource.k8s.io/v1", "gpu-9"
    device = {"name": "gpu-0", "attributes": {"uuid": {"string": "GPU-0"}}}
    pool = {"name": host, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.nvidia.com", "nodeName": host, "pool": pool, "devices": [device]}
    gangs.api.post(f"{resources}/resourceslices", {"metadata": {"name": host}, "spec": spec})
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu"}}
    claims = f"{resources}/namespaces/default/resourceclaims"
    gangs.api.post(claims, {"metadata": {"name": "team"}, "spec": {"devices": {"requests": [request]}}})
    created = pod("claimed", gpus=0)
    created["spec"] |= {
        "schedulingGroup": {"podGroupName": "train"},
        "nodeName": host,
        "resourceClaims": [{"name": "gpu", "resourceClaimName": "team"}],
    }
    gangs.api.post(PODS, created)
    uid = gangs.api.get(f"{GROUPS}/train")["metadata"]["uid"]
    result = {"request": "gpu", "driver": "gpu.nvidia.com", "pool": host, "device": "gpu-0"}
    api = await ApiClient.connect(str(gangs.kubeconfig))
    try:
        drain = drain_cluster(api)
        for owner, gpu_ids in ((uid, ("GPU-0",)), ("uid-of-an-earlier-one", ())):
            user = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "train", "uid": owner}
            status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [user]}
            gangs.api.patch(f"{claims}/team/status", {"status": status})
            [found] = await drain.with_claims(host, await drain.node_pods(host))
            assert (found.gpu_ids, found.claims) == (gpu_ids, () if gpu_ids else ("team",))
    finally:
        await api.close()
        gangs.api.delete(f"{PODS}/claimed")


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
