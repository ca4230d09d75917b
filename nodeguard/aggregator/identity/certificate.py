"""Authentication by client certificates, without Kubernetes. The TLS handshake has verified them already."""

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
    "no certificate was presented: set certificate_file and key_file of `aggregator` in the agent's settings"
)
_NAMELESS = "the certificate has no node name: its common name, or one of its DNS names, must be the node's"


class CertificateAuthenticator:
    """Authenticates agents: the common name and DNS names of a certificate are the nodes of its agent."""

    def cached(self, presented: PresentedCredentials, now: float) -> VerifiedIdentity | None:
        """Return the identity; None if there is none: then authenticate raises the reason."""
        if presented.certificate is None:
            return None
        identity = identity_of_certificate(presented.certificate)
        return identity if identity.node_names and now < identity.expires_at else None

    async def authenticate(self, presented: PresentedCredentials, now: float) -> VerifiedIdentity:
        """Return the identity. Raises RequestRefusedError."""
        if presented.certificate is None:
            raise RequestRefusedError(401, _MISSING)
        identity = identity_of_certificate(presented.certificate)
        if not identity.node_names:
            raise RequestRefusedError(401, _NAMELESS)
        if now >= identity.expires_at:
            problem = f"the certificate {expired_problem(now, 'the aggregator')}"
            refused = RequestRefusedError(401, problem, reason="certificate-expired")
            refused.node = identity.node_names[0]
            raise refused
        return identity


def identity_of_certificate(certificate: Mapping[str, Any]) -> VerifiedIdentity:
    """Return the identity in a certificate, as ssl.SSLSocket.getpeercert returns it. Pure."""
    names = tuple(dict.fromkeys(name for name in _names(certificate) if is_node_name(name)))
    return VerifiedIdentity(names, expires_at=float(ssl.cert_time_to_seconds(certificate["notAfter"])))


def _names(certificate: Mapping[str, Any]) -> Iterator[str]:
    for part in certificate.get("subject", ()):
        yield from (value for kind, value in part if kind == "commonName")
    yield from (value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS")
