"""What a server shows of itself in a handshake, and whose certificates it accepts."""

from __future__ import annotations

import os
import ssl
from math import inf

from msgspec import Struct


class ShowingError(Exception):
    """A certificate, key or authority that cannot be used; says which and why, and nothing of the key."""


class Showing(Struct, frozen=True):
    """certificate: with its chain, and key, both in PEM. clients: certificates in PEM of who signs those of
    clients, empty where these show none. until: when the certificate ends, in seconds since 1970.
    """

    certificate: str
    key: str
    clients: str = ""
    until: float = inf

    def __repr__(self) -> str:
        return f"Showing(until={self.until!r})"


def context(showing: Showing) -> ssl.SSLContext:
    """What connections are made with. Raises ShowingError."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    # No agent resumes a session; what is not kept costs no memory, and is no way around a certificate's end.
    made.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
    made.num_tickets = 0
    _load(made, showing)
    if showing.clients:
        # Who shows none is answered in words.
        made.verify_mode = ssl.CERT_OPTIONAL
        try:
            made.load_verify_locations(cadata=showing.clients)
        except (ssl.SSLError, ValueError):
            raise ShowingError(
                "who signs the clients' certificates is not told in PEM: write that there"
            ) from None
    return made


def _load(made: ssl.SSLContext, showing: Showing) -> None:
    """Give a context its certificate by way of memory: a key is written on no disk."""
    number = os.memfd_create("nodeguard", os.MFD_CLOEXEC)
    try:
        os.write(number, f"{showing.key}\n{showing.certificate}\n".encode())
        # A key with a password is refused, not asked for on a terminal.
        made.load_cert_chain(f"/proc/self/fd/{number}", password="")
    except ssl.SSLError as error:
        why = "the key is not that of the certificate" if "MISMATCH" in str(error.reason) else "they are none"
        raise ShowingError(f"certificate and key cannot be used, {why}: write both there in PEM") from None
    except (OSError, ValueError) as error:
        raise ShowingError(f"certificate and key cannot be used, {type(error).__name__}") from None
    finally:
        os.close(number)
