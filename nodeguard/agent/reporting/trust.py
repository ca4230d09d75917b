"""The certificates that a receiver's own is held against."""

from __future__ import annotations

import ssl


class TrustError(Exception):
    """A file of certificates that cannot be used; names it, says why and how to remedy."""


def trusting(ca_file: str | None) -> ssl.SSLContext:
    """What a connection by TLS is made with. ca_file: None for the system's. Raises TrustError."""
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except ssl.SSLError:
        raise TrustError(f"{ca_file} holds no certificates: write the CA's there, in PEM") from None
    except OSError as error:
        raise TrustError(
            f"{ca_file}: {error.strerror}: put the CA's certificates there, or leave ca_file away"
        ) from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context
