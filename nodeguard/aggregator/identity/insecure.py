"""Nobody is asked who they are: for a demonstration on this very machine alone."""

from __future__ import annotations

from ipaddress import ip_address

from nodeguard.aggregator.identity.caller import PresentedCredentials, VerifiedIdentity

WARNING = (
    "INSECURE: agents are not asked who they are, and nothing is encrypted: whoever is on this machine can "
    "speak for any node; use it for a demonstration only"
)
_ANYBODY = VerifiedIdentity(None)


class NotLoopbackError(Exception):
    """An address that others than this machine can reach; says what to do."""


class InsecureAuthenticator:
    """Lets in everybody. host: where the server listens. Raises NotLoopbackError where others reach that."""

    def __init__(self, host: str) -> None:
        if not is_loopback(host):
            raise NotLoopbackError(
                "without tokens or certificates agents are heard on 127.0.0.1 and ::1 alone: listen there, "
                "or set how agents show who they are"
            )

    def cached(self, _shown: PresentedCredentials, _now: float) -> VerifiedIdentity:
        """Anybody."""
        return _ANYBODY

    async def authenticate(self, _shown: PresentedCredentials, _now: float) -> VerifiedIdentity:
        """Anybody."""
        return _ANYBODY


def is_loopback(host: str) -> bool:
    """Whether an address, as a number, is this machine's own. A name is not: it may lead anywhere."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
