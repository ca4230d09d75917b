"""Discovery: which resources an API group of a cluster has."""

from __future__ import annotations

from msgspec import Struct

from nodeguard.kube.client import ApiClient
from nodeguard.kube.errors import ApiError, decoded
from nodeguard.model.json_decoder import JsonDecoder


class _Resource(Struct):
    name: str


class _Group(Struct):
    resources: list[_Resource] = []


_DECODER = JsonDecoder(_Group)


async def served_resources(api: ApiClient, path: str) -> frozenset[str]:
    """Return the plural names of the resources of an API group and version, by its path; none if the server
    does not have it. Raises ApiError.
    """
    try:
        group = decoded(_DECODER.decode, await api.request("GET", path), path)
    except ApiError as error:
        if error.status == 404:
            return frozenset()
        raise
    return frozenset(resource.name for resource in group.resources)
