"""A lease that is deleted, or is older after a restore: no two candidates write at a time."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from nodeguard.kube.client import ApiClient
from nodeguard.kube.lease import MAX_DURATION, Lease, RestoredError
from tests.controlplane.cluster import API, Cluster
from tests.kube.leases import LEASES, PATIENCE, candidate, until_renewed


async def test_the_epoch_of_a_deleted_lease_is_higher_than_every_written_epoch(
    near_api: ApiClient, api_server: Cluster
) -> None:
    first, second = candidate(near_api, "one"), candidate(near_api, "two")
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
    second.raise_epoch_above(2**30)  # more than any lease has
    assert await second.renew(110.0 + PATIENCE)
    assert second.epoch == 9


async def test_a_deleted_lease_is_taken_after_its_holder_has_stopped(
    near_api: ApiClient, api_server: Cluster
) -> None:
    first, second = candidate(near_api, "one"), candidate(near_api, "two")
    assert await first.renew(100.0)
    assert not await second.renew(100.0)
    assert await first.renew(103.0)
    api_server.api.delete(f"{LEASES}/nodeguard")
    for now in (104.0, 108.0, 112.0):
        assert first.is_held(now)
        assert not await second.renew(now)
    # A write of the holder that began at 112.9 may take 5 s.
    assert not await second.renew(118.0)
    assert await second.renew(119.0)
    # After a release there is no holder to wait for.
    await second.release()
    assert not await first.renew(116.0, wanted=False)
    api_server.api.delete(f"{LEASES}/nodeguard")
    assert await first.renew(118.0)


async def test_the_deletion_of_a_lease_ends_a_long_hold(near_api: ApiClient, api_server: Cluster) -> None:
    job = Lease(near_api, "default", "nodeguard", "uninstall", MAX_DURATION, lambda: 0.0)
    assert not await job.seize()
    first = candidate(near_api, "one")
    assert not await first.renew(100.0)
    assert not await first.renew(115.0)
    api_server.api.delete(f"{LEASES}/nodeguard")
    assert not await first.renew(116.0)
    assert await first.renew(131.0)


async def test_a_restored_cluster_ends_the_holder_and_the_candidate(
    near_api: ApiClient, api_server: Cluster, tmp_path: Path
) -> None:
    first, second = candidate(near_api, "one"), candidate(near_api, "two")
    assert await first.renew(100.0)
    data = api_server.processes.directory / "etcd"
    await asyncio.to_thread(replace_data, api_server, data, tmp_path / "backup")
    await until_renewed(first, 110.0)
    assert not await second.renew(110.0)
    await asyncio.to_thread(replace_data, api_server, tmp_path / "backup", data)
    for lease in (first, second):
        with pytest.raises(RestoredError, match=r"restored to an earlier state.*start the aggregator again"):
            await until_renewed(lease, 115.0)


def replace_data(cluster: Cluster, source: Path, target: Path) -> None:
    """Copy the data of etcd to or from a backup while no component runs."""
    for component in reversed(API):
        cluster.stop(component)
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    for component in API:
        cluster.start(component)
    cluster.ready()


async def test_a_holder_that_was_cut_off_waits_as_a_candidate_after_a_deletion(
    near_api: ApiClient, api_server: Cluster
) -> None:
    first = candidate(near_api, "one")
    assert await first.renew(100.0)
    api_server.api.delete(f"{LEASES}/nodeguard")
    # Another candidate may have taken it meanwhile, and renewed it just before the deletion.
    cut_off = 100.0 + PATIENCE
    assert not await first.renew(cut_off)  # it writes to the lease, which is gone
    assert not await first.renew(cut_off + 1.0)
    assert not await first.renew(cut_off + 1.0 + PATIENCE - 0.1)
    assert await first.renew(cut_off + 1.0 + PATIENCE + 1.0)
