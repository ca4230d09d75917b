"""Who asks, and what shows it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Protocol

from msgspec import Struct

# A Node's name: that of a DNS subdomain.
_NODE = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*\Z")


# Reasons by status, for metrics, where no other reason is given.
_REASONS = {400: "unreadable", 403: "forbidden", 413: "too-large", 415: "unreadable", 429: "too-often"}


class PresentedCredentials(Struct, frozen=True):
    """What a caller shows. authorization: the header, empty where there is none. certificate: the client's,
    in the form of ssl.SSLSocket.getpeercert, None where it showed none that is trusted.
    """

    authorization: str = ""
    certificate: Mapping[str, Any] | None = None

    def __repr__(self) -> str:
        return "Shown()"


class VerifiedIdentity(Struct, frozen=True):
    """Who a caller was found to be. names: of Nodes that it may speak for; None for any. uid: of the one
    Node that it speaks for, empty where a name is all there is. until: seconds since 1970, when this ends.
    """

    node_names: tuple[str, ...] | None
    uid: str = ""
    expires_at: float = 0.0


class Caller(Struct, frozen=True):
    """The node that a message is of. uid: its Node's; the name itself where there is no Kubernetes."""

    node: str
    uid: str


class RequestRefusedError(Exception):
    """A message that is refused, or its sender; says why and how to remedy, never what was sent.

    status: HTTP's: 401 and 403 until the credential is another one, 409 for this very message, others for
    now. put_off: seconds after which it may be sent again. reason: a word for metrics. node: whose message it
    is, once the sender's credential has shown that; empty before.
    """

    def __init__(self, status: int, why: str, put_off: float = 0.0, reason: str = "") -> None:
        super().__init__(why)
        self.status, self.retry_after, self.reason = status, put_off, reason or _REASONS.get(status, "other")
        self.node = ""


class Authenticator(Protocol):
    """A way to tell who asks. now: seconds since 1970."""

    def cached(self, shown: PresentedCredentials, now: float) -> VerifiedIdentity | None:
        """Who it is, where that needs no work."""

    async def authenticate(self, shown: PresentedCredentials, now: float) -> VerifiedIdentity:
        """Who it is. Raises RefusedError."""


def is_node_name(name: str) -> bool:
    """Whether a Node can have this name."""
    return _NODE.match(name) is not None


def authorize(credential: VerifiedIdentity, node: str) -> Caller:
    """Who speaks in a message that names a node. Raises RefusedError where it may not."""
    if credential.node_names is not None and node not in credential.node_names:
        raise RequestRefusedError(
            403,
            "this message is of another node than its sender's credential: set the agent's `node` to the "
            "name of its own Node, and give it a credential of its own",
        )
    if credential.node_names is None and not is_node_name(node):
        raise RequestRefusedError(
            403, "this is no Node's name: set the agent's `node` to the name of its own Node"
        )
    return Caller(node, credential.uid or node)
