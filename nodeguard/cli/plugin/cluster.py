"""Requests of the plug-in to the Kubernetes API, with the rights of its caller."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from nodeguard.cli.plugin.options import ClusterOptions
from nodeguard.cli.usage import UsageError
from nodeguard.kube.access import user_kubeconfig
from nodeguard.kube.client import ApiClient, ApiError

_Answer = TypeVar("_Answer")

# What has the roles of people.
ROLES = "docs/install/kubernetes.md#roles-of-people"


def ask(options: ClusterOptions, query: Callable[[ApiClient], Awaitable[_Answer]]) -> _Answer:
    """Return the answer to a query. Raises UsageError."""
    try:
        return asyncio.run(_ask(options, query))
    except ApiError as error:
        raise UsageError(f"the cluster cannot be read: {error.message}") from None


async def _ask(options: ClusterOptions, query: Callable[[ApiClient], Awaitable[_Answer]]) -> _Answer:
    kubeconfig = user_kubeconfig(options.kubeconfig)
    client = await ApiClient.connect(kubeconfig, options.context, headers=options.impersonation())
    try:
        return await query(client)
    finally:
        await client.close()


def missing_right(options: ClusterOptions, right: str, role: str) -> UsageError:
    """Return the error for a right that the user lacks. right: in words. role: that gives it."""
    user = f"{options.user} has" if options.user else "you have"
    return UsageError(f"{user} no right to {right}: {role} gives it, see {ROLES}")
