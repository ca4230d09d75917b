"""Agents that show a certificate: the way without Kubernetes. The handshake has verified it already."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from typing import Any

from nodeguard.aggregator.identity.caller import (
    PresentedCredentials,
    RequestRefusedError,
    VerifiedIdentity,
    is_node_name,
)
from nodeguard.local.certificate_validity import expired_problem

_MISSING = (
    "no certificate was shown: set certificate_file and key_file of `aggregator` in the agent's settings"
)
_NAMELESS = (
    "the certificate names no node: have its common name, or one of its DNS names, be the name of the node"
)


class CertificateAuthenticator:
    """A certificate's common name and DNS names are the nodes that it may speak for."""

    def cached(self, shown: PresentedCredentials, now: float) -> VerifiedIdentity | None:
        """Who it is; None where it is nobody, and identify says why."""
        if shown.certificate is None:
            return None
        found = identity_of_certificate(shown.certificate)
        return found if found.node_names and now < found.expires_at else None

    async def authenticate(self, shown: PresentedCredentials, now: float) -> VerifiedIdentity:
        """Who it is. Raises RefusedError."""
        if shown.certificate is None:
            raise RequestRefusedError(401, _MISSING)
        found = identity_of_certificate(shown.certificate)
        if not found.node_names:
            raise RequestRefusedError(401, _NAMELESS)
        if now >= found.expires_at:
            raise RequestRefusedError(401, f"the certificate {expired_problem(now, 'the aggregator')}")
        return found


def identity_of_certificate(certificate: Mapping[str, Any]) -> VerifiedIdentity:
    """Who a certificate is for. certificate: as ssl.SSLSocket.getpeercert has it. Pure."""
    names = tuple(dict.fromkeys(name for name in _names(certificate) if is_node_name(name)))
    return VerifiedIdentity(names, expires_at=float(ssl.cert_time_to_seconds(certificate["notAfter"])))


def _names(certificate: Mapping[str, Any]) -> Iterator[str]:
    for part in certificate.get("subject", ()):
        yield from (value for kind, value in part if kind == "commonName")
    yield from (value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS")
