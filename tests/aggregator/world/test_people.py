"""What people decide in a cluster, on a real API server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from nodeguard.aggregator.api.decide import DecisionError
from nodeguard.aggregator.world.people import People
from nodeguard.kube import incident_object
from nodeguard.kube.client import MERGE, Api
from nodeguard.kube.incidents import PATH
from nodeguard.model.incident import State
from tests.controlplane.cluster import Cluster
from tests.controlplane.defining import define_incidents


@pytest.fixture
async def api(controlplane: Cluster) -> AsyncIterator[Api]:
    made = await Api.connect(str(controlplane.kubeconfig))
    yield made
    await made.close()


@pytest.fixture
def people(api: Api, controlplane: Cluster) -> People:
    define_incidents(controlplane)
    return People(api, "nodeguard", lambda _: None, lambda _: None)


async def test_only_an_incident_that_is_open_can_be_cleared(api: Api, people: People) -> None:
    await api.request("POST", PATH, body=incident_object.new("i"))
    assert (await people.clear("i", "Ann")).startswith("the node's agent is asked to clear i; ")
    over = {"status": {"state": State.RESOLVED.value}}
    await api.request("PATCH", f"{PATH}/i/status", body=over, content=MERGE)
    with pytest.raises(
        DecisionError, match=r"^i is over, so there is nothing to clear: see nodeguard explain"
    ):
        await people.clear("i", "Bob")
    spec = incident_object.seen(await api.request("GET", f"{PATH}/i")).decision
    assert spec.clear.startswith("Ann at ")


async def test_what_is_not_recorded_may_be_pending(people: People) -> None:
    for decide in (people.clear("i", "Ann"), people.acknowledge("i", "Ann")):
        with pytest.raises(
            DecisionError, match=r"^there is no incident i, or it is pending: see nodeguard inc"
        ):
            await decide
