"""The requests that the API server refuses for lack of a right or of the resource, from all responses."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from msgspec import Struct

from nodeguard.kube.errors import ApiError
from nodeguard.model.refused_request import RefusedRequest

# Seconds after the latest refusal until it counts as over: a write is repeated within half of this, except if
# it is not wanted any more.
REFUSAL_LASTS = 120.0

# Statuses of requests that the server has permitted. Other errors show nothing about a right.
_PERMITTED = frozenset({200, 201, 403, 404, 409, 422})

_VERBS = {"POST": "create", "PATCH": "patch", "PUT": "update", "DELETE": "delete"}


class _Refusal(Struct):
    since: float
    latest: float
    reason: str


class RefusedRequests:
    """Counts a right as missing from the first refusal until a request that needs it is permitted. A resource
    that cannot be created because it, or its namespace, does not exist counts as well.

    clock: returns seconds of a monotonic clock.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._refusals: dict[tuple[str, str], _Refusal] = {}

    def record(self, right: tuple[str, str], status: int, error: ApiError | None = None) -> None:
        """Record the status of a response. right: verb and resource; error: None for a success."""
        now = self._clock()
        if error is not None and (error.lacks_right or is_not_served(right, status)):
            before = self._refusals.get(right)
            is_new = before is None or now - before.latest > REFUSAL_LASTS
            since = now if before is None or is_new else before.since
            self._refusals[right] = _Refusal(since, now, error.message)
        elif status in _PERMITTED:
            self._refusals.pop(right, None)

    def current(self) -> tuple[RefusedRequest, ...]:
        """Return what is refused now, in the order of the resources."""
        now = self._clock()
        refusals = [
            RefusedRequest(verb, resource, refusal.reason, now - refusal.since)
            for (verb, resource), refusal in self._refusals.items()
            if now - refusal.latest <= REFUSAL_LASTS
        ]
        return tuple(sorted(refusals, key=lambda refused: (refused.resource, refused.verb)))


def is_not_served(right: tuple[str, str], status: int) -> bool:
    """Return whether a status means that the server does not have a resource, or its namespace. For another
    request, also one of a subresource such as `pods/eviction`, the same status is about one object.
    """
    verb, resource = right
    return status == 404 and verb == "create" and "/" not in resource


def request_right(method: str, path: str, *, is_watch: bool) -> tuple[str, str]:
    """Return the verb and the resource of the right that a request needs. A path without a resource is its
    own.
    """
    segments = path.strip("/").split("/")
    # The version of the core API has one segment after `api`, another one its group, too.
    names = segments[2:] if segments[0] == "api" else segments[3:] if segments[0] == "apis" else []
    if names[:1] == ["namespaces"] and len(names) > 2:
        names = names[2:]
    if not names:
        return "get", path
    resource = "/".join((names[0], *names[2:]))
    read = "watch" if is_watch else "get" if len(names) > 1 else "list"
    return _VERBS.get(method, read), resource
