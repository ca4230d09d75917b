"""The executor of marks on an API server that restarts, and on one that refuses too many writes."""

from __future__ import annotations

import asyncio
from pathlib import Path

from nodeguard.kube.client import ApiClient
from nodeguard.kube.executor import WriteResult
from tests.controlplane.cluster import API, Cluster, NewCluster
from tests.controlplane.credentials import write_kubeconfig
from tests.controlplane.objects import node
from tests.kube.writing import NODES, QUARANTINE, SUSPECT, Writing, desired, ours, read, writing
from tests.waiting import PATIENCE


async def test_all_writes_succeed_after_a_restart_of_the_server(
    near_api: ApiClient, api_server: Cluster
) -> None:
    names = [f"gpu-{number}" for number in range(40)]
    for name in names:
        api_server.api.post(NODES, node(name))
    async with writing(near_api, rate=200.0) as writers:
        await marked_across_a_restart(api_server, near_api, writers, names)
        assert [ours(await read(near_api, name)) for name in names] == [{QUARANTINE}] * 40


async def marked_across_a_restart(
    api_only: Cluster, api: ApiClient, writers: Writing, names: list[str]
) -> None:
    for name in names:
        writers.executor.set_desired(desired(await read(api, name), QUARANTINE))
    await writers.until(lambda: len(writers.outcomes) > 5)
    api_only.stop("kube-apiserver")
    await writers.until(lambda: writers.messages)
    api_only.start("kube-apiserver")
    await asyncio.to_thread(api_only.ready)
    await writers.idle()
    for name in names:
        assert writers.results(name)[-1] is WriteResult.WRITTEN
    assert sum("could not be reached" in message for message in writers.messages) <= len(names)
    assert writers.messages[-1] == "INFO all writes succeed again"


async def test_retries_respect_the_rate_limit_of_the_server(tmp_path: Path, new_cluster: NewCluster) -> None:
    # The server allows one write at a time for users who are no administrators, and returns 429 for others.
    narrow = ["--enable-priority-and-fairness=false", "--max-mutating-requests-inflight=1"]
    with new_cluster(API, {"kube-apiserver": narrow}) as limited:
        names = [f"gpu-{number}" for number in range(20)]
        for name in names:
            limited.api.post(NODES, node(name))
        api = await ApiClient.connect(str(unprivileged_kubeconfig(limited, tmp_path)))
        try:
            async with writing(api) as writers:
                gpu_nodes = [await read(api, name) for name in names]
                wanted = [QUARANTINE]
                async with asyncio.timeout(PATIENCE):
                    while not writers.messages:
                        for gpu_node in gpu_nodes:
                            writers.executor.set_desired(desired(gpu_node, *wanted))
                        await writers.idle()
                        wanted = [SUSPECT] if wanted == [QUARANTINE] else [QUARANTINE]
                for name in names:
                    assert ours(await read(api, name)) == {QUARANTINE, SUSPECT} - set(wanted)
        finally:
            await api.close()
    first, *rest = writers.messages
    assert "the Kubernetes API returned 429" in first
    assert rest[-1] == "INFO all writes succeed again"


def unprivileged_kubeconfig(cluster: Cluster, directory: Path) -> Path:
    """Return a kubeconfig of a service account with all permissions but not in system:masters."""
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    cluster.api.post(accounts, {"metadata": {"name": "unprivileged"}})
    cluster.api.post(
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        {
            "metadata": {"name": "unprivileged"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "cluster-admin",
            },
            "subjects": [{"kind": "ServiceAccount", "name": "unprivileged", "namespace": "default"}],
        },
    )
    token = cluster.api.post(f"{accounts}/unprivileged/token", {"spec": {}})["status"]["token"]
    path = directory / "kubeconfig"
    write_kubeconfig(path, cluster.url, cluster.ca, token)
    return path
