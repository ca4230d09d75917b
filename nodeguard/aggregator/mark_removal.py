"""Removal of all marks with the credentials of a pod or of a kubeconfig, without an aggregator."""

from __future__ import annotations

import asyncio
import os
import signal

from nodeguard.aggregator.api.requests import ActionResult
from nodeguard.aggregator.backends.kubernetes import LEASE_NAME
from nodeguard.aggregator.backends.operator_actions import foreign_taints_note
from nodeguard.kube.access import user_kubeconfig
from nodeguard.kube.client import ApiClient, ApiError
from nodeguard.kube.lease import MAX_DURATION, Lease
from nodeguard.kube.mark_removal import MarkRemovalError, remove_all_marks
from nodeguard.model.failure import UserError

__all__ = ["RemovalFailedError", "remove_marks"]


class RemovalFailedError(UserError):
    """Marks are left. The message has the reason and the remedy."""


async def remove_marks(kubeconfig: str = "", context: str = "") -> ActionResult:
    """Remove all marks of the cluster. SIGTERM stops it and releases the lease. Raises RemovalFailedError.

    As for an aggregator, the environment has the pod's name and namespace. kubeconfig: see `user_kubeconfig`.
    context: of it, empty for its current one.
    """
    namespace = os.environ.get("POD_NAMESPACE", "nodeguard")
    name = os.environ.get("POD_NAME") or os.uname().nodename
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        api = await ApiClient.connect(user_kubeconfig(kubeconfig), context)
        try:
            removed = await remove_all_marks(api, Lease(api, namespace, LEASE_NAME, name, MAX_DURATION))
        finally:
            await api.close()
    except (ApiError, MarkRemovalError) as error:
        if isinstance(error, ApiError) and error.status == 404:  # only the Lease is in a namespace
            raise RemovalFailedError(
                f"marks may be left: there is no namespace {namespace} for the Lease that stops the "
                "aggregators: name theirs, kubectl nodeguard -n NAMESPACE unmark …; or kubectl create "
                f"namespace {namespace}, and run this again"
            ) from None
        raise RemovalFailedError(f"marks may be left: {error}") from None
    except asyncio.CancelledError:
        raise RemovalFailedError("marks may be left: the command was stopped; run it again") from None
    return ActionResult(
        f"removed all marks (nodes: {len(removed.nodes)}, GPUs: {len(removed.rules)}); "
        f"aggregators that run set none for {MAX_DURATION // 60} minutes"
        f"{foreign_taints_note(removed.foreign)}"
    )
