"""Removal of all marks with the credentials of a pod or of a kubeconfig, without an aggregator."""

from __future__ import annotations

import os

from nodeguard.aggregator.api.requests import ActionResult
from nodeguard.aggregator.backends.kubernetes import LEASE_NAME
from nodeguard.kube.access import user_kubeconfig
from nodeguard.kube.client import ApiClient, ApiError
from nodeguard.kube.lease import MAX_DURATION, Lease
from nodeguard.kube.mark_removal import MarkRemovalError, remove_all_marks

__all__ = ["RemovalFailedError", "remove_marks"]


class RemovalFailedError(Exception):
    """Marks are left. The message has the reason and the remedy."""


async def remove_marks() -> ActionResult:
    """Remove all marks of the cluster. Raises RemovalFailedError.

    As for an aggregator, the environment has the pod's name and namespace. The kubeconfig is that of kubectl.
    """
    namespace = os.environ.get("POD_NAMESPACE", "nodeguard")
    name = os.environ.get("POD_NAME") or os.uname().nodename
    try:
        api = await ApiClient.connect(user_kubeconfig())
        try:
            removed = await remove_all_marks(api, Lease(api, namespace, LEASE_NAME, name, MAX_DURATION))
        finally:
            await api.close()
    except (ApiError, MarkRemovalError) as error:
        raise RemovalFailedError(f"marks may be left: {error}") from None
    return ActionResult(
        f"removed all marks (nodes: {len(removed.nodes)}, GPUs: {len(removed.rules)}); "
        f"aggregators that run set none for {MAX_DURATION // 60} minutes"
    )
