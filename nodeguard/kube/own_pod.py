"""The pod that an aggregator runs in, as what Events of its own are about."""

from __future__ import annotations

from urllib.parse import quote

import msgspec
from msgspec import Struct

from nodeguard.kube.client import Api
from nodeguard.kube.event_filter import Said
from nodeguard.kube.refusal import ApiError, plain


class _Meta(Struct):
    uid: str


class _Pod(Struct):
    metadata: _Meta


_DECODER = msgspec.json.Decoder(_Pod)


async def warning(api: Api, namespace: str, pod: str, reason: str, message: str) -> Said:
    """A warning about a pod. Raises ApiError where there is none of that name."""
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(pod, safe='')}"
    try:
        uid = _DECODER.decode(await api.request("GET", path)).metadata.uid
    except msgspec.MsgspecError as error:
        raise ApiError(0, "Unreadable", f"the pod {pod} cannot be read: {plain(str(error))}") from None
    return Said(pod, uid, "Warning", reason, message, of="Pod", namespace=namespace)
