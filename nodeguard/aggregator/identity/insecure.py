"""No authentication: for a demonstration on one machine."""

from __future__ import annotations

import logging
from ipaddress import ip_address

from nodeguard.aggregator.identity.caller import PresentedCredentials, VerifiedIdentity

logger = logging.getLogger(__name__)

_ANY_NODE = VerifiedIdentity(None)


class NotLoopbackError(Exception):
    """The address can be reached from other machines. The message has the remedy."""


class InsecureAuthenticator:
    """Accepts every client. host: address of the server. Raises NotLoopbackError unless it is loopback."""

    def __init__(self, host: str) -> None:
        if not is_loopback(host):
            raise NotLoopbackError(
                "without tokens or certificates the aggregator accepts agents on 127.0.0.1 and ::1 only: "
                "listen there, or set --client-ca"
            )
        logger.warning(
            "agents are not authenticated and connections are not encrypted",
            extra={"remedy": "use --insecure for a demonstration only, every local process can report"},
        )

    def cached(self, _presented: PresentedCredentials, _now: float) -> VerifiedIdentity:
        """Return the identity of any node."""
        return _ANY_NODE

    async def authenticate(self, _presented: PresentedCredentials, _now: float) -> VerifiedIdentity:
        """Return the identity of any node."""
        return _ANY_NODE


def is_loopback(host: str) -> bool:
    """Return whether a numeric address is a loopback address. A name is not: it may resolve elsewhere."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
