"""One Secret, read."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from nodeguard.kube.client import Api
from nodeguard.kube.refusal import ApiError


class _Secret(Struct):
    data: dict[str, bytes] = {}  # base64, which msgspec undoes


_DECODER = msgspec.json.Decoder(_Secret)


async def read_secret(api: Api, namespace: str, name: str) -> dict[str, bytes]:
    """What a Secret holds, by key. Raises ApiError, which never holds any of it; 404 where there is none."""
    body = await api.request("GET", f"/api/v1/namespaces/{namespace}/secrets/{name}")
    try:
        return _DECODER.decode(body).data
    except msgspec.MsgspecError:
        raise ApiError(0, "Unreadable", f"Secret {name} cannot be read: is it one?") from None
