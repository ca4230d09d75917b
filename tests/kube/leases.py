"""Candidates for a lease of a real API server."""

from __future__ import annotations

from nodeguard.kube.client import ApiClient
from nodeguard.kube.lease import Lease
from nodeguard.kube.lease_record import LEASE_SECONDS
from tests.controlplane.api import Object
from tests.controlplane.cluster import Cluster

LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"

# Seconds after which a candidate takes a lease that has not changed.
PATIENCE = float(LEASE_SECONDS)


def candidate(api: ApiClient, name: str) -> Lease:
    return Lease(api, "default", "nodeguard", name, clock=lambda: 0.0)


def spec(control: Cluster) -> Object:
    current: Object = control.api.get(f"{LEASES}/nodeguard")["spec"]
    return current


async def until_renewed(lease: Lease, now: float) -> None:
    """Renew a lease again and again until a new version is written: requests fail on earlier connections."""
    renewals = lease.renewals
    for attempt in range(30):
        await lease.renew(now + attempt)
        if lease.renewals > renewals:
            return
    raise AssertionError("the lease is not renewed")
