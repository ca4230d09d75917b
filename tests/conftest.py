"""The cluster that tests share, and clean ground on it for each."""

from __future__ import annotations

import secrets
from collections.abc import Generator, Iterator

import pytest

from tests.controlplane.cluster import SERVICE_ACCOUNT, Cluster, cluster
from tests.controlplane.commands import Component
from tests.controlplane.objects import clear

# The cluster of a test, and how long each component's log was when the test began, in bytes.
_SCENE = pytest.StashKey[tuple[Cluster, dict[Component, int]]]()


@pytest.fixture(scope="session")
def shared_cluster() -> Iterator[Cluster]:
    with cluster() as made:
        yield made


@pytest.fixture
def controlplane(shared_cluster: Cluster, request: pytest.FixtureRequest) -> Cluster:
    """A whole control plane, the same for all tests, without Nodes and pods. A test that fails shows its logs."""
    clear(shared_cluster.api)
    lengths = {name: shared_cluster.kept.log(name).stat().st_size for name in shared_cluster.components}
    request.node.stash[_SCENE] = (shared_cluster, lengths)
    return shared_cluster


@pytest.fixture
def namespace(controlplane: Cluster) -> str:
    """Name of an empty namespace, in which pods can be made."""
    name = f"test-{secrets.token_hex(4)}"
    controlplane.api.post("/api/v1/namespaces", {"metadata": {"name": name}})
    controlplane.until(lambda: controlplane.has(SERVICE_ACCOUNT.format(name)), "kube-controller-manager")
    return name


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and (scene := item.stash.get(_SCENE, None)) is not None:
        made, lengths = scene
        report.sections += [
            (f"Log of {name}", made.kept.tail(name, since)) for name, since in lengths.items()
        ]
    return report
