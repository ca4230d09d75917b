"""A lease that is seized from its holder, and one that is released."""

from __future__ import annotations

import pytest

from nodeguard.kube.client import ApiClient
from nodeguard.kube.errors import ApiError
from nodeguard.kube.lease import Lease
from nodeguard.kube.lease_record import LeaseRecord
from tests.controlplane.cluster import Cluster
from tests.kube.detour import Detour
from tests.kube.leases import candidate, spec
from tests.logs import LogLines


async def test_a_released_lease_is_taken_at_once(near_api: ApiClient, api_server: Cluster) -> None:
    first, second = candidate(near_api, "one"), candidate(near_api, "two")
    await first.renew(100.0)
    await second.renew(100.0)
    await first.release()
    assert not first.is_held(100.0)
    assert spec(api_server)["holderIdentity"] == ""
    assert (first.holder(100.0), second.holder(100.0)) == ("", "one")
    assert await second.renew(101.0)
    assert (second.epoch, second.holder(101.0)) == (2, "two")
    await first.release()  # nothing to release
    assert spec(api_server)["holderIdentity"] == second.identity


async def test_an_unwanted_lease_is_released_and_only_read(
    near_api: ApiClient, api_server: Cluster, log: LogLines
) -> None:
    first, second = candidate(near_api, "one"), candidate(near_api, "two")
    await first.renew(100.0)
    await second.renew(100.0)
    assert (first.vacant_since, second.vacant_since) == (None, None)
    assert not await first.renew(101.0, wanted=False)
    assert spec(api_server)["holderIdentity"] == ""
    assert not await second.renew(102.0, wanted=False)
    assert not await first.renew(103.0, wanted=False)
    assert (first.vacant_since, second.vacant_since) == (101.0, 102.0)
    assert spec(api_server)["holderIdentity"] == ""
    assert await second.renew(104.0)
    await first.renew(105.0, wanted=False)
    assert (first.vacant_since, second.vacant_since, first.holder(105.0)) == (None, None, "two")
    assert log.text()[1] == "INFO lost leadership epoch=1 reason=this aggregator releases it"


class OvertakenLease(Lease):
    """A candidate that is overtaken: the holder renews the lease between its read and its write, `times` times."""

    def __init__(self, api: ApiClient, holder: Lease, times: int) -> None:
        super().__init__(api, "default", "nodeguard", "two")
        self._other, self._times, self._now = holder, times, 100.0

    async def _read(self, timeout: float = 1.0) -> LeaseRecord | None:
        record = await super()._read(timeout)
        if self._times:
            self._times -= 1
            self._now += 4.0
            assert await self._other.renew(self._now)
        return record


async def test_a_lease_is_seized_from_a_holder_that_renews_it(
    near_api: ApiClient, api_server: Cluster
) -> None:
    first = candidate(near_api, "one")
    await first.renew(100.0)
    second = OvertakenLease(near_api, first, times=3)
    assert await second.seize()
    assert (spec(api_server)["holderIdentity"], spec(api_server)["leaseTransitions"]) == (second.identity, 2)
    # Once more, from itself.
    assert not await second.seize()


async def test_a_seized_lease_is_released(near_api: ApiClient, api_server: Cluster) -> None:
    first, second = candidate(near_api, "one"), candidate(near_api, "two")
    await first.renew(100.0)
    await second.seize()
    await second.release()
    assert spec(api_server)["holderIdentity"] == ""
    await first.renew(104.0)  # it finds that its lease has changed
    assert await first.renew(105.0)
    assert first.epoch == 3
    await second.release()  # nothing to release
    assert spec(api_server)["holderIdentity"] == first.identity


class UnansweredLease(Lease):
    """A candidate: each of its writes is carried out, but the first response never arrives."""

    def __init__(self, api: ApiClient) -> None:
        super().__init__(api, "default", "nodeguard", "two")
        self._answered = False

    async def _write(
        self,
        record: LeaseRecord,
        holder: str,
        epoch: int,
        *,
        is_new: bool = False,
        timeout: float = 1.0,
    ) -> LeaseRecord:
        written = await super()._write(record, holder, epoch, is_new=is_new, timeout=timeout)
        return self._unless_first(written)

    async def _create(self) -> LeaseRecord:
        return self._unless_first(await super()._create())

    def _unless_first(self, written: LeaseRecord) -> LeaseRecord:
        if not self._answered:
            self._answered = True
            raise ApiError(0, "Timeout", "no response")
        return written


@pytest.mark.parametrize("exists", [True, False])
async def test_a_lease_is_released_after_a_seizing_write_without_a_response(
    near_api: ApiClient, api_server: Cluster, exists: bool
) -> None:
    first, second = candidate(near_api, "one"), UnansweredLease(near_api)
    if exists:
        await first.renew(100.0)
    with pytest.raises(ApiError, match="no response"):
        await second.seize()
    assert spec(api_server)["holderIdentity"] == second.identity
    await second.release()
    assert spec(api_server)["holderIdentity"] == ""


async def test_a_lease_that_always_changes_is_not_seized(near_api: ApiClient) -> None:
    first = candidate(near_api, "one")
    await first.renew(100.0)
    with pytest.raises(ApiError) as conflict:
        await OvertakenLease(near_api, first, times=99).seize()
    assert conflict.value.status == 409


@pytest.mark.usefixtures("near_api")
async def test_a_holder_with_a_failed_renewal_still_releases_the_lease(
    far_api: ApiClient, detour: Detour, api_server: Cluster, log: LogLines
) -> None:
    first = candidate(far_api, "one")
    await first.renew(100.0)
    detour.cut()
    await first.renew(104.0)
    detour.restore()
    await first.release()
    assert spec(api_server)["holderIdentity"] == ""
    # Without the API, the lease expires.
    assert await first.renew(105.0)
    detour.cut()
    await first.release()
    assert not first.is_held(105.0)
    assert log.messages() == [
        "became leader",
        "cannot read or renew the Lease",
        "became leader",
        "the Lease can be renewed again",
        "cannot read or renew the Lease",
    ]
