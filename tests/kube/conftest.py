"""A client of the cluster that tests share."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from nodeguard.kube.client import Api
from tests.controlplane.cluster import Cluster


@pytest_asyncio.fixture
async def api(controlplane: Cluster) -> AsyncIterator[Api]:
    made = await Api.connect(str(controlplane.kubeconfig))
    yield made
    await made.close()
