"""The sender of a request: its credentials, its identity, and the nodes for which it may report."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Protocol

from msgspec import Struct

# A Node's name: a DNS subdomain name.
_NODE = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*\Z")

# Default reasons by HTTP status, for metrics.
_REASONS = {400: "unreadable", 403: "forbidden", 413: "too-large", 415: "unreadable", 429: "too-often"}


class PresentedCredentials(Struct, frozen=True):
    """The credentials of a request. authorization: the header, empty if it is missing. certificate: of the
    client, as ssl.SSLSocket.getpeercert returns it, None without a trusted one.
    """

    authorization: str = ""
    certificate: Mapping[str, Any] | None = None

    def __repr__(self) -> str:
        return "PresentedCredentials()"


class VerifiedIdentity(Struct, frozen=True):
    """An authenticated identity. node_names: Nodes that it may report for, None for any. uid: of its one
    Node, empty if the credential has a name only. expires_at: seconds since 1970.
    """

    node_names: tuple[str, ...] | None
    uid: str = ""
    expires_at: float = 0.0


class Caller(Struct, frozen=True):
    """The node that a message is of. uid: of its Node; without Kubernetes, the name itself."""

    node: str
    uid: str


class RequestRefusedError(Exception):
    """A refused request. The message has the reason and the remedy, and nothing that the client sent.

    status: HTTP status: 401 and 403 last until the credential changes, 409 is for this message only.
    retry_after: seconds until the request may be repeated. reason: a label value for metrics. node: of the
    message, or of a credential with a verified signature; empty if neither is verified.
    """

    def __init__(self, status: int, message: str, retry_after: float = 0.0, reason: str = "") -> None:
        super().__init__(message)
        self.status, self.retry_after = status, retry_after
        self.reason = reason or _REASONS.get(status, "other")
        self.node = ""


class Authenticator(Protocol):
    """A method of authentication. now: seconds since 1970."""

    def cached(self, presented: PresentedCredentials, now: float) -> VerifiedIdentity | None:
        """Return the identity if it needs no work, else None."""

    async def authenticate(self, presented: PresentedCredentials, now: float) -> VerifiedIdentity:
        """Return the identity. Raises RequestRefusedError."""


def is_node_name(name: str) -> bool:
    """Return whether a Node can have this name."""
    return _NODE.match(name) is not None


def authorize(identity: VerifiedIdentity, node: str) -> Caller:
    """Return the caller of a message of a node. Raises RequestRefusedError if the identity may not report
    for this node.
    """
    if identity.node_names is not None and node not in identity.node_names:
        raise RequestRefusedError(
            403,
            "the message is of another node than the sender's credential: set the agent's `node` to the "
            "name of its own Node, and give it a credential of its own",
        )
    if identity.node_names is None and not is_node_name(node):
        raise RequestRefusedError(
            403, "the node name is invalid: set the agent's `node` to the name of its own Node"
        )
    return Caller(node, identity.uid or node)
