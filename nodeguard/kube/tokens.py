"""Signing keys of service account tokens, as the API server publishes them."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from nodeguard.kube.client import ApiClient

# Bytes of a response that are parsed.
_LIMIT = 1024 * 1024


class UnreadableError(Exception):
    """The response is not one of the Kubernetes API."""


class _Discovery(Struct, frozen=True):
    issuer: str


async def published_keys(api: ApiClient) -> tuple[str, bytes]:
    """Return the issuer of the cluster's tokens and the document of its keys. Raises ApiError,
    UnreadableError.
    """
    discovery = await api.request("GET", "/.well-known/openid-configuration")
    document = await api.request("GET", "/openid/v1/jwks")
    if len(discovery) > _LIMIT:
        raise UnreadableError(f"the response has more than {_LIMIT} bytes")
    try:
        return msgspec.json.decode(discovery, type=_Discovery).issuer, document
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise UnreadableError("the response is not one of the Kubernetes API") from None
