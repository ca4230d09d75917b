"""Clients of the API, direct and through a proxy that a test can cut."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from nodeguard.kube.client import ApiClient
from tests.controlplane.cluster import Cluster
from tests.controlplane.definitions import define_incidents
from tests.controlplane.objects import clear, node
from tests.kube.detour import Detour
from tests.kube.leases import LEASES
from tests.kube.real_pods import BUDGETS, NODE, OTHER, PODS, Pods
from tests.kube.writing import NODES


@pytest_asyncio.fixture
async def api(controlplane: Cluster) -> AsyncIterator[ApiClient]:
    client = await ApiClient.connect(str(controlplane.kubeconfig))
    yield client
    await client.close()


@pytest.fixture
def api_server(shared_api_server: Cluster) -> Cluster:
    """An API server without Nodes and controllers, which these tests may kill."""
    clear(shared_api_server.api)
    return shared_api_server


@pytest.fixture
def older_api_server(shared_older_api_server: Cluster) -> Cluster:
    """An API server of an earlier version, without Nodes and controllers."""
    clear(shared_older_api_server.api)
    return shared_older_api_server


@pytest_asyncio.fixture
async def older_api(older_api_server: Cluster) -> AsyncIterator[ApiClient]:
    client = await ApiClient.connect(str(older_api_server.kubeconfig))
    yield client
    await client.close()


@pytest_asyncio.fixture
async def near_api(api_server: Cluster) -> AsyncIterator[ApiClient]:
    """A client of `api_server`, beside `far_api`; there is no lease yet."""
    api_server.api.delete(LEASES)
    made = await ApiClient.connect(str(api_server.kubeconfig))
    yield made
    await made.close()


@pytest_asyncio.fixture
async def detour(api_server: Cluster) -> AsyncIterator[Detour]:
    """A proxy to `api_server`."""
    async with Detour(api_server.port) as made:
        yield made


@pytest_asyncio.fixture
async def far_api(api_server: Cluster, detour: Detour, tmp_path: Path) -> AsyncIterator[ApiClient]:
    """A client of `api_server` that connects through the proxy."""
    kubeconfig = tmp_path / "far.kubeconfig"
    kubeconfig.write_text(api_server.kubeconfig.read_text().replace(api_server.url, detour.url))
    client = await ApiClient.connect(str(kubeconfig))
    yield client
    await client.close()


@pytest.fixture
def defined(controlplane: Cluster) -> Cluster:
    """A control plane with the definition of NodeIncidents, and without objects."""
    define_incidents(controlplane)
    return controlplane


@pytest.fixture
def names(controlplane: Cluster) -> list[str]:
    """Create Nodes, and wait until the controllers have removed their taints."""
    names = [f"gpu-{number}" for number in range(3)]
    for name in names:
        controlplane.api.post(NODES, node(name))
    controlplane.until(
        lambda: not any(item["spec"].get("taints") for item in controlplane.api.get(NODES)["items"]),
        "kube-controller-manager",
    )
    return names


@pytest_asyncio.fixture
async def pods(controlplane: Cluster, api: ApiClient) -> AsyncIterator[Pods]:
    controlplane.api.delete(BUDGETS)
    for name in (NODE, OTHER):
        controlplane.api.post(NODES, node(name))
    yield Pods(controlplane, api)
    controlplane.api.delete(PODS)
    controlplane.api.delete(BUDGETS)
