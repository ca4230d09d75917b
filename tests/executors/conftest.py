"""An API server of the conformance suite, and a receiver of marks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.controlplane.cluster import API, Cluster, NewCluster
from tests.controlplane.objects import clear
from tests.executors.receiver import receiver

__all__ = ["receiver"]


@pytest.fixture(scope="session")
def _nodes_server(new_cluster: NewCluster) -> Iterator[Cluster]:
    with new_cluster(API) as made:
        yield made


@pytest.fixture
def nodes_server(_nodes_server: Cluster) -> Cluster:
    """An API server without Nodes and controllers."""
    clear(_nodes_server.api)
    return _nodes_server
