"""Leader election: one candidate holds the lease, and none while another may write."""

from __future__ import annotations

from nodeguard.kube.client import ApiClient
from nodeguard.kube.lease import HOLD_SECONDS, MAX_DURATION, Lease
from nodeguard.model.instant import parse_rfc3339
from tests.controlplane.cluster import Cluster
from tests.kube.detour import Detour
from tests.kube.leases import LEASES, PATIENCE, candidate, spec
from tests.logs import LogLines


async def test_one_of_two_candidates_holds_the_lease(
    near_api: ApiClient, api_server: Cluster, log: LogLines
) -> None:
    first, second = candidate(near_api, "one"), candidate(near_api, "two")
    assert await first.renew(100.0)
    assert not await second.renew(100.0)
    assert log.text() == ["INFO became leader epoch=1"]
    assert spec(api_server)["holderIdentity"] == first.identity
    for now in range(101, 140):
        assert await first.renew(float(now))
        assert not await second.renew(float(now))
        assert (first.holder(now), second.holder(now)) == ("one", "one")
    assert (first.epoch, second.epoch, second.is_held(139.0)) == (1, 0, False)


async def test_a_candidate_reads_from_when_until_when_an_earlier_holder_led(
    near_api: ApiClient, api_server: Cluster
) -> None:
    first = candidate(near_api, "one")
    await first.renew(100.0)
    await first.renew(105.0)
    assert first.earlier_term is None
    lease = spec(api_server)
    second = candidate(near_api, "two")
    await second.renew(106.0)
    await first.release()
    await second.renew(110.0)
    term = parse_rfc3339(lease["acquireTime"]), parse_rfc3339(lease["renewTime"])
    assert (second.is_held(110.0), second.earlier_term) == (True, term)
    assert term[0] < term[1]


async def test_a_holder_that_freezes_stops_before_another_begins(
    near_api: ApiClient, api_server: Cluster, log: LogLines
) -> None:
    first, second = candidate(near_api, "one"), candidate(near_api, "two")
    await first.renew(100.0)
    now = 100.0
    while not await second.renew(now):
        now += 0.5
    assert now == 100.0 + PATIENCE
    assert second.epoch == 2
    # The first stopped by itself, early enough for its running writes to end.
    assert first.is_held(100.0 + HOLD_SECONDS - 0.01)
    assert not first.is_held(100.0 + HOLD_SECONDS)
    assert (first.seconds_left(104.0), first.seconds_left(100.0 + HOLD_SECONDS + 1.0)) == (
        HOLD_SECONDS - 4.0,
        0.0,
    )
    assert now >= 100.0 + HOLD_SECONDS + 5.0
    # It wakes up, and detects that another candidate holds the lease.
    assert not await first.renew(now)
    assert not await first.renew(now + 1.0)
    assert log.text()[-1] == f"INFO lost leadership epoch=1 reason={second.identity} holds it"
    assert spec(api_server)["leaseTransitions"] == 2


async def test_a_holder_that_cannot_renew_is_not_the_holder_any_more(
    far_api: ApiClient, near_api: ApiClient, detour: Detour
) -> None:
    first, second = candidate(near_api, "one"), candidate(far_api, "two")
    await first.renew(100.0)
    await second.renew(100.0)
    detour.cut()
    for now in (101.0, 100.0 + PATIENCE):
        await second.renew(now)
        assert second.holder(now - 0.01) == "one"
    assert second.holder(100.0 + PATIENCE) == ""
    assert (first.holder(100.0 + HOLD_SECONDS - 0.01), first.holder(100.0 + HOLD_SECONDS)) == ("one", "")


async def test_a_renewed_lease_has_no_other_holder(near_api: ApiClient) -> None:
    first, second = candidate(near_api, "one"), candidate(near_api, "two")
    now = 0.0
    while now < 60.0:
        await first.renew(now)
        assert not await second.renew(now)
        now += 7.0  # as slow as a planner may be
        assert first.is_held(now)


async def test_the_problem_of_requests_has_the_time_of_the_first_one(
    far_api: ApiClient, detour: Detour, log: LogLines
) -> None:
    first = candidate(far_api, "one")

    async def renewed(now: float) -> tuple[float, int] | None:
        await first.renew(now)
        return None if first.problem is None else (first.problem.since, first.problem.error.status)

    assert await renewed(100.0) is None
    detour.cut()
    for now in (103.0, 104.0, 105.0):
        assert await renewed(now) == (103.0, 0)
    detour.restore()
    assert await renewed(106.0) is None
    assert log.messages()[-1] == "the Lease can be renewed again"


async def test_an_unreachable_api_server_ends_the_lease_until_it_responds(
    near_api: ApiClient, far_api: ApiClient, detour: Detour, api_server: Cluster, log: LogLines
) -> None:
    first = candidate(far_api, "one")
    await first.renew(100.0)
    detour.cut()
    for now in (103.0, 104.0, 105.0):
        assert await first.renew(now)
    assert not await first.renew(111.0)
    detour.restore()
    assert await first.renew(112.0)
    assert first.epoch == 1
    assert "the Kubernetes API at https://127.0.0.1:" in log.text()[1]
    assert log.messages()[1:] == [*["cannot read or renew the Lease"] * 2, "the Lease can be renewed again"]
    # Only the first cannot reach the API: another candidate takes the lease, and the first detects that later.
    second = candidate(near_api, "two")
    await second.renew(112.0)
    detour.cut()
    await first.renew(116.0)
    assert await second.renew(112.0 + PATIENCE)
    detour.restore()
    assert not await first.renew(112.0 + PATIENCE)
    assert (first.is_held(113.0), second.epoch) == (False, 2)


async def test_one_of_two_candidates_wins_a_conflict(near_api: ApiClient, api_server: Cluster) -> None:
    api_server.api.post(LEASES, {"metadata": {"name": "nodeguard", "labels": {"mine": "yes"}}})
    first, second = candidate(near_api, "one"), candidate(near_api, "two")
    second._record = await second._read()  # both read a lease without a holder
    assert await first.renew(100.0)
    assert not await second.renew(100.0)
    assert not await second.renew(102.0)
    assert api_server.api.get(f"{LEASES}/nodeguard")["metadata"]["labels"] == {"mine": "yes"}


async def test_an_error_is_logged_once(near_api: ApiClient, log: LogLines) -> None:
    lost = Lease(near_api, "nowhere", "nodeguard", "one")
    for now in range(5):
        assert not await lost.renew(float(now))
    assert len(log.text()) == 1
    assert 'namespaces "nowhere" not found' in log.text()[0]


async def test_a_number_of_transitions_that_no_lease_reaches_starts_no_epoch(
    near_api: ApiClient, api_server: Cluster
) -> None:
    path = f"{LEASES}/nodeguard"
    largest = {"spec": {"leaseTransitions": 2**31 - 1}}
    first, second = candidate(near_api, "one"), candidate(near_api, "two")
    first.raise_epoch_above(7)
    await first.renew(100.0)
    # The holder keeps its lease with the next epoch.
    api_server.api.patch(path, largest)
    assert await first.renew(104.0)
    assert await first.renew(105.0)
    assert (first.epoch, spec(api_server)["leaseTransitions"]) == (9, 9)
    await first.release()
    # A candidate that knows no epoch takes it, too.
    api_server.api.patch(path, largest)
    assert await second.renew(110.0)
    assert (second.epoch, spec(api_server)["leaseTransitions"]) == (1, 1)
    api_server.api.patch(path, largest)
    third = candidate(near_api, "three")
    assert await third.seize()
    assert spec(api_server)["leaseTransitions"] == 1


async def test_a_lease_of_a_foreign_client_is_respected_and_then_taken(
    near_api: ApiClient, api_server: Cluster, log: LogLines
) -> None:
    times = {"acquireTime": "0001-01-01T00:00:00.000000Z", "renewTime": "9999-12-31T23:59:59.000000Z"}
    foreign = {"holderIdentity": "a\nb" + "x" * 100_000, "leaseDurationSeconds": 2**31 - 1, **times}
    api_server.api.post(LEASES, {"metadata": {"name": "nodeguard"}, "spec": foreign})
    lease = candidate(near_api, "one")
    assert not await lease.renew(100.0)
    assert lease.holder(100.0).startswith("a bx")
    assert len(lease.holder(100.0)) <= 400
    assert not await lease.renew(100.0 + MAX_DURATION - 1.0)
    assert await lease.renew(100.0 + MAX_DURATION)
    assert lease.earlier_term is None
    assert lease.holder(101.0 + MAX_DURATION) == "one"
