"""What the API server says of service accounts' tokens: its keys, a token's worth, and a pod's node."""

from __future__ import annotations

from typing import TypeVar
from urllib.parse import quote

import msgspec
from msgspec import Struct

from nodeguard.kube.client import ApiClient

# Bytes of an answer that are looked at.
_LIMIT = 1024 * 1024

_EXTRA = "authentication.kubernetes.io/"

Form = TypeVar("Form")


class UnreadableError(Exception):
    """An answer that is not what the API server says."""


class Reviewed(Struct, frozen=True):
    """A token that the API server finds good. user: as `system:serviceaccount:NAMESPACE:NAME`. pod, pod_uid,
    node, uid: of the pod that it is bound to and of that one's Node; each is empty where it does not say.
    """

    user: str
    pod: str = ""
    pod_uid: str = ""
    node: str = ""
    uid: str = ""


class _Discovery(Struct, frozen=True):
    issuer: str


class _User(Struct, frozen=True):
    username: str = ""
    extra: dict[str, list[str]] = {}


class _ReviewStatus(Struct, frozen=True):
    authenticated: bool = False
    audiences: list[str] = []
    user: _User = _User()


class _Review(Struct, frozen=True):
    status: _ReviewStatus = _ReviewStatus()


class _PodMetadata(Struct, frozen=True):
    uid: str = ""


class _PodSpec(Struct, frozen=True):
    node: str = msgspec.field(default="", name="nodeName")


class _Pod(Struct, frozen=True):
    metadata: _PodMetadata = _PodMetadata()
    spec: _PodSpec = _PodSpec()


async def published_keys(api: ApiClient) -> tuple[str, bytes]:
    """Who issues the cluster's tokens, and the document of its keys. Raises ApiError, UnreadableError."""
    discovery = await api.request("GET", "/.well-known/openid-configuration")
    document = await api.request("GET", "/openid/v1/jwks")
    return _read(discovery, _Discovery).issuer, document


async def review(api: ApiClient, token: str, audience: str) -> Reviewed | None:
    """What the API server says of a token; None where it is not good, or not for this audience.

    Raises ApiError, UnreadableError.
    """
    asked = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": {"token": token, "audiences": [audience]},
    }
    path = "/apis/authentication.k8s.io/v1/tokenreviews"
    status = _read(await api.request("POST", path, body=asked), _Review).status
    # A server that knows nothing of audiences says none, and vouches for none.
    if not status.authenticated or audience not in status.audiences:
        return None

    def extra(name: str) -> str:
        return next(iter(status.user.extra.get(_EXTRA + name, ())), "")

    return Reviewed(
        status.user.username, extra("pod-name"), extra("pod-uid"), extra("node-name"), extra("node-uid")
    )


async def node_of_pod(api: ApiClient, namespace: str, pod: str, uid: str) -> str:
    """Name of the Node that a pod is bound to; empty where it is bound to none, or is another by now.

    Raises ApiError, UnreadableError.
    """
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(pod, safe='')}"
    found = _read(await api.request("GET", path), _Pod)
    return found.spec.node if found.metadata.uid == uid else ""


def _read(data: bytes, form: type[Form]) -> Form:
    if len(data) > _LIMIT:
        raise UnreadableError(f"its answer has more than {_LIMIT} bytes")
    try:
        return msgspec.json.decode(data, type=form)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise UnreadableError("its answer is not one of the Kubernetes API") from None
