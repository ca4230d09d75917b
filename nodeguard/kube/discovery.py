"""Discovery: which resources an API group of a cluster has."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from nodeguard.kube.client import ApiClient
from nodeguard.kube.errors import ApiError, single_line


class _Resource(Struct):
    name: str


class _Group(Struct):
    resources: list[_Resource] = []


_DECODER = msgspec.json.Decoder(_Group)


async def served_resources(api: ApiClient, path: str) -> frozenset[str]:
    """Return the plural names of the resources of an API group and version, by its path; none if the server
    does not have it. Raises ApiError.
    """
    try:
        group = _DECODER.decode(await api.request("GET", path))
    except msgspec.MsgspecError as error:
        raise ApiError(0, "Unreadable", f"{path} could not be read: {single_line(str(error))}") from None
    except ApiError as error:
        if error.status == 404:
            return frozenset()
        raise
    return frozenset(resource.name for resource in group.resources)
