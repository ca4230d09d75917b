"""Which rights a request needs, and since when the API server refuses one."""

from __future__ import annotations

import pytest

from nodeguard.kube.errors import ApiError
from nodeguard.kube.refused_requests import REFUSAL_LASTS, RefusedRequests, request_right

CONDITIONS = ("patch", "nodes/status")
EVENTS = ("create", "events")
INCIDENTS = "/apis/nodeguard.dev/v1alpha1/nodeincidents"


def forbidden(message: str) -> ApiError:
    return ApiError(403, "Forbidden", message, lacks_right=True)


@pytest.mark.parametrize(
    ("method", "path", "right"),
    [
        ("GET", "/api/v1/nodes", "list nodes"),
        ("GET", "/api/v1/nodes/gpu-1", "get nodes"),
        ("PATCH", "/api/v1/nodes/gpu-1", "patch nodes"),
        ("PATCH", "/api/v1/nodes/gpu-1/status", "patch nodes/status"),
        ("POST", "/api/v1/namespaces/default/events", "create events"),
        ("PATCH", "/api/v1/namespaces/default/events/gpu-1.18c", "patch events"),
        ("GET", "/api/v1/namespaces/nodeguard", "get namespaces"),
        ("DELETE", f"{INCIDENTS}/gpu-1-gpu-lost", "delete nodeincidents"),
        ("PATCH", f"{INCIDENTS}/gpu-1-gpu-lost/status", "patch nodeincidents/status"),
        ("PUT", "/apis/coordination.k8s.io/v1/namespaces/nodeguard/leases/nodeguard", "update leases"),
        ("GET", "/apis/resource.k8s.io/v1", "get /apis/resource.k8s.io/v1"),
        ("GET", "/openid/v1/jwks", "get /openid/v1/jwks"),
    ],
)
def test_the_right_that_a_request_needs(method: str, path: str, right: str) -> None:
    assert " ".join(request_right(method, path, is_watch=False)) == right


def test_a_watch_needs_a_right_of_its_own() -> None:
    assert request_right("GET", "/api/v1/nodes", is_watch=True) == ("watch", "nodes")


def test_a_right_is_missing_until_a_request_that_needs_it_is_permitted() -> None:
    now = 100.0
    refused = RefusedRequests(lambda: now)

    def current() -> list[tuple[str, str, float]]:
        return [(f"{item.verb} {item.resource}", item.reason, item.seconds) for item in refused.current()]

    refused.record(CONDITIONS, 403, forbidden("forbidden"))
    refused.record(EVENTS, 403, forbidden("forbidden"))
    now = 130.0
    refused.record(CONDITIONS, 403, forbidden("still forbidden"))
    refused.record(CONDITIONS, 503, ApiError(503, "ServiceUnavailable", "overloaded"))
    assert current() == [
        ("create events", "forbidden", 30.0),
        ("patch nodes/status", "still forbidden", 30.0),
    ]
    refused.record(EVENTS, 201)
    assert current() == [("patch nodes/status", "still forbidden", 30.0)]
    refused.record(CONDITIONS, 409, ApiError(409, "Conflict", "conflict"))
    assert current() == []


def test_what_is_not_requested_any_more_is_not_reported_for_ever() -> None:
    now = 100.0
    refused = RefusedRequests(lambda: now)
    refused.record(EVENTS, 403, forbidden("forbidden"))
    now += REFUSAL_LASTS + 1.0
    assert refused.current() == ()
    refused.record(EVENTS, 403, forbidden("forbidden"))
    assert [item.seconds for item in refused.current()] == [0.0]


def test_a_resource_that_cannot_be_created_is_missing_until_it_is_served() -> None:
    refused, creation = RefusedRequests(), ("create", "nodeincidents")
    not_found = ApiError(404, "NotFound", "404 page not found")
    refused.record(creation, 404, not_found)
    assert [(item.verb, item.resource, item.reason) for item in refused.current()] == [
        (*creation, "404 page not found")
    ]
    refused.record(creation, 201)
    # An object that is gone shows nothing about its resource.
    for right in (("create", "pods/eviction"), ("patch", "nodeincidents"), ("get", "nodes")):
        refused.record(right, 404, not_found)
    assert refused.current() == ()


def test_a_request_that_a_webhook_denies_has_its_right() -> None:
    refused = RefusedRequests()
    refused.record(CONDITIONS, 403, forbidden("forbidden"))
    refused.record(CONDITIONS, 403, ApiError(403, "Forbidden", "denied the request"))
    assert refused.current() == ()
