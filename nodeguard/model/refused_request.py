"""A refused request: what the API server forbids nodeguard to do, while all else goes on."""

from __future__ import annotations

from msgspec import Struct


class RefusedRequest(Struct, frozen=True):
    """Requests of one kind that the API server refuses for lack of a right or of the resource."""

    verb: str
    """Of a request in Kubernetes, such as `patch`."""

    resource: str
    """With its subresource, such as `nodes/status`; the path of a request about no resource."""

    reason: str
    """Error of the latest request, with the remedy."""

    seconds: float
    """Since the first refusal."""
