"""One of several writes, and none while another may."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from nodeguard.kube.client import ApiClient
from nodeguard.kube.lease import HOLD_SECONDS, LEASE_SECONDS, Lease
from tests.controlplane.api import Object
from tests.controlplane.cluster import Cluster
from tests.kube.detour import Detour

LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"

# Seconds after which one who saw a lease unchanged takes it.
PATIENCE = LEASE_SECONDS + 2.0


@pytest_asyncio.fixture
async def near_api(api_server: Cluster) -> AsyncIterator[ApiClient]:
    """A client of `api_server`, beside `far_api`; there is no lease yet."""
    api_server.api.delete(LEASES)
    made = await ApiClient.connect(str(api_server.kubeconfig))
    yield made
    await made.close()


def wanting(api: ApiClient, name: str, messages: list[str] | None = None) -> Lease:
    return Lease(api, "default", "nodeguard", name, (messages if messages is not None else []).append)


def spec(control: Cluster) -> Object:
    found: Object = control.api.get(f"{LEASES}/nodeguard")["spec"]
    return found


async def test_one_of_two_holds_it(near_api: ApiClient, api_server: Cluster) -> None:
    messages: list[str] = []
    first, second = wanting(near_api, "one", messages), wanting(near_api, "two")
    assert await first.renew(100.0)
    assert not await second.renew(100.0)
    assert messages == ["Lease: this aggregator leads in epoch 1"]
    assert spec(api_server)["holderIdentity"] == first.identity
    for now in range(101, 140):
        assert await first.renew(float(now))
        assert not await second.renew(float(now))
        assert (first.holder, second.holder) == ("one", "one")
    assert (first.epoch, second.epoch, second.is_held(139.0)) == (1, 0, False)


async def test_a_holder_that_freezes_stops_before_another_begins(
    near_api: ApiClient, api_server: Cluster
) -> None:
    messages: list[str] = []
    first, second = wanting(near_api, "one", messages), wanting(near_api, "two")
    await first.renew(100.0)
    now = 100.0
    while not await second.renew(now):
        now += 0.5
    assert now == 100.0 + PATIENCE
    assert second.epoch == 2
    # The first stopped of itself, early enough for the end of what it was writing.
    assert first.is_held(100.0 + HOLD_SECONDS - 0.01)
    assert not first.is_held(100.0 + HOLD_SECONDS)
    assert (first.seconds_left(104.0), first.seconds_left(100.0 + HOLD_SECONDS + 1.0)) == (
        HOLD_SECONDS - 4.0,
        0.0,
    )
    assert now >= 100.0 + HOLD_SECONDS + 5.0
    # It wakes up, and finds that it is not the one any more.
    assert not await first.renew(now)
    assert not await first.renew(now + 1.0)
    assert messages[-1] == f"Lease: this aggregator no longer leads: {second.identity} holds it"
    assert spec(api_server)["leaseTransitions"] == 2


async def test_a_holder_that_is_renewed_is_never_followed(near_api: ApiClient) -> None:
    first, second = wanting(near_api, "one"), wanting(near_api, "two")
    now = 0.0
    while now < 60.0:
        await first.renew(now)
        assert not await second.renew(now)
        now += 7.0  # as slow as a planner may be
        assert first.is_held(now)


async def test_who_gives_it_back_is_followed_at_once(near_api: ApiClient, api_server: Cluster) -> None:
    first, second = wanting(near_api, "one"), wanting(near_api, "two")
    await first.renew(100.0)
    await second.renew(100.0)
    await first.release()
    assert not first.is_held(100.0)
    assert spec(api_server)["holderIdentity"] == ""
    assert (first.holder, second.holder) == ("", "one")
    assert await second.renew(101.0)
    assert (second.epoch, second.holder) == (2, "two")
    await first.release()  # nothing to give back
    assert spec(api_server)["holderIdentity"] == second.identity


async def test_who_was_refused_gives_it_back_all_the_same(
    near_api: ApiClient, far_api: ApiClient, detour: Detour, api_server: Cluster
) -> None:
    messages: list[str] = []
    first = wanting(far_api, "one", messages)
    await first.renew(100.0)
    detour.cut()
    await first.renew(104.0)
    detour.mend()
    await first.release()
    assert spec(api_server)["holderIdentity"] == ""
    # Where the API is away, it runs out by itself.
    assert await first.renew(105.0)
    detour.cut()
    await first.release()
    assert not first.is_held(105.0)
    assert len(messages) == 5


async def test_an_api_server_that_is_away_for_a_while(
    near_api: ApiClient, far_api: ApiClient, detour: Detour, api_server: Cluster
) -> None:
    messages: list[str] = []
    first = wanting(far_api, "one", messages)
    await first.renew(100.0)
    detour.cut()
    for now in (103.0, 104.0, 105.0):
        assert await first.renew(now)
    assert not await first.renew(111.0)
    detour.mend()
    assert await first.renew(112.0)
    assert first.epoch == 1
    assert len(messages) == 3
    assert messages[1].startswith("Lease: the Kubernetes API at https://127.0.0.1:")
    assert messages[2] == "Lease: the Kubernetes API responds again"
    # Away from the first alone: another takes it, and the first knows when it is back.
    second = wanting(near_api, "two")
    await second.renew(112.0)
    detour.cut()
    await first.renew(116.0)
    assert await second.renew(112.0 + PATIENCE)
    detour.mend()
    assert not await first.renew(112.0 + PATIENCE)
    assert (first.is_held(113.0), second.epoch) == (False, 2)


async def test_a_lease_that_was_deleted_begins_above_what_was_written(
    near_api: ApiClient, api_server: Cluster
) -> None:
    first, second = wanting(near_api, "one"), wanting(near_api, "two")
    first.raise_epoch_above(7)
    assert await first.renew(100.0)
    assert first.epoch == 8
    api_server.api.delete(f"{LEASES}/nodeguard")
    assert await second.renew(100.0 + PATIENCE)
    assert second.epoch == 1
    second.raise_epoch_above(8)
    assert await second.renew(101.0 + PATIENCE)
    assert second.epoch == 9
    second.raise_epoch_above(8)
    second.raise_epoch_above(2**30)  # no lease comes so far
    assert await second.renew(110.0 + PATIENCE)
    assert second.epoch == 9


async def test_two_who_take_it_at_once(near_api: ApiClient, api_server: Cluster) -> None:
    api_server.api.post(LEASES, {"metadata": {"name": "nodeguard", "labels": {"mine": "yes"}}})
    first, second = wanting(near_api, "one"), wanting(near_api, "two")
    second._record = await second._read()  # both saw it free
    assert await first.renew(100.0)
    assert not await second.renew(100.0)
    assert not await second.renew(102.0)
    assert api_server.api.get(f"{LEASES}/nodeguard")["metadata"]["labels"] == {"mine": "yes"}


async def test_what_is_wrong_is_told_once(near_api: ApiClient) -> None:
    messages: list[str] = []
    lost = Lease(near_api, "nowhere", "nodeguard", "one", messages.append)
    for now in range(5):
        assert not await lost.renew(float(now))
    assert len(messages) == 1
    assert 'namespaces "nowhere" not found' in messages[0]
