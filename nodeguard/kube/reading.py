"""Reads objects and rights for a command of a person: each once, without a watch."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple, TypeVar

import msgspec
from msgspec import Struct, field

from nodeguard.kube.client import ApiClient, Query
from nodeguard.kube.errors import ApiError
from nodeguard.kube.objects import RawList
from nodeguard.model.json_decoder import JsonDecoder

# Objects of one page of a list, and seconds for a request.
_PAGE = 500
_TIMEOUT = 30.0

_REVIEWS = "/apis/authorization.k8s.io/v1"

_Schema = TypeVar("_Schema")


class Right(NamedTuple):
    """A right of RBAC. resource: such as `pods/exec`. namespace: empty for all."""

    verb: str
    group: str
    resource: str
    namespace: str


class _ReviewStatus(Struct):
    allowed: bool = False


class _Review(Struct):
    status: _ReviewStatus = field(default_factory=_ReviewStatus)


async def get_object(client: ApiClient, path: str, schema: type[_Schema]) -> _Schema:
    """Return an object. Raises ApiError."""
    return _decode(await client.request("GET", path, timeout=_TIMEOUT), schema, path)


async def list_objects(client: ApiClient, path: str, schema: type[_Schema]) -> AsyncIterator[_Schema]:
    """Yield all objects of a list, page by page. Raises ApiError."""
    token = ""
    while True:
        query: Query = {"limit": _PAGE, **({"continue": token} if token else {})}
        response = await client.request("GET", path, query=query, timeout=_TIMEOUT)
        page = _decode(response, RawList, path)
        if page.items is None:
            raise ApiError(0, "Invalid", f"the response of {path} cannot be used: it has no items")
        for item in page.items:
            yield _decode(item, schema, path)
        token = page.metadata.continue_token
        if not token:
            return


async def has_right(client: ApiClient, right: Right, user: str = "", groups: Sequence[str] = ()) -> bool:
    """Return whether a user has a right. user: empty for the caller. Raises ApiError.

    To ask about another user takes a right of its own.
    """
    kind, _, subresource = right.resource.partition("/")
    attributes = {"verb": right.verb, "group": right.group, "resource": kind, "subresource": subresource}
    if right.namespace:
        attributes["namespace"] = right.namespace
    subject = {"user": user, "groups": groups} if user else {}
    review = "SubjectAccessReview" if user else "SelfSubjectAccessReview"
    path = f"{_REVIEWS}/{review.lower()}s"
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": review,
        "spec": {**subject, "resourceAttributes": attributes},
    }
    response = await client.request("POST", path, body=body, timeout=_TIMEOUT)
    return _decode(response, _Review, path).status.allowed


def _decode(content: bytes | msgspec.Raw, schema: type[_Schema], path: str) -> _Schema:
    """Return an object of the API. Raises ApiError: an aggregated API or a proxy may return another one."""
    try:
        return JsonDecoder(schema).decode(content)
    except msgspec.DecodeError as error:
        raise ApiError(0, "Invalid", f"the response of {path} cannot be used: {error}") from None
