"""The certificate that the server shows now, whoever made it; renewed without a restart."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable
from math import inf
from typing import Protocol

from msgspec import Struct


class ServingCertificateError(Exception):
    """A certificate, key or authority that cannot be used; says which and why, and nothing of the key."""


class ServingCertificate(Struct, frozen=True):
    """certificate: with its chain, and key, both in PEM. clients: certificates in PEM of who signs those of
    clients, empty where these show none. until: when the certificate ends, in seconds since 1970.
    """

    certificate: str
    key: str
    client_ca: str = ""
    expires_at: float = inf

    def __repr__(self) -> str:
        return f"Showing(until={self.expires_at!r})"


def tls_context(showing: ServingCertificate) -> ssl.SSLContext:
    """What connections are made with. Raises ShowingError."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    # No agent resumes a session; what is not kept costs no memory, and is no way around a certificate's end.
    made.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
    made.num_tickets = 0
    _load(made, showing)
    if showing.client_ca:
        # Who shows none is answered in words.
        made.verify_mode = ssl.CERT_OPTIONAL
        try:
            made.load_verify_locations(cadata=showing.client_ca)
        except (ssl.SSLError, ValueError):
            raise ServingCertificateError(
                "who signs the clients' certificates is not told in PEM: write that there"
            ) from None
    return made


def _load(made: ssl.SSLContext, showing: ServingCertificate) -> None:
    """Give a context its certificate by way of memory: a key is written on no disk."""
    number = os.memfd_create("nodeguard", os.MFD_CLOEXEC)
    try:
        os.write(number, f"{showing.key}\n{showing.certificate}\n".encode())
        # A key with a password is refused, not asked for on a terminal.
        made.load_cert_chain(f"/proc/self/fd/{number}", password="")
    except ssl.SSLError as error:
        why = "the key is not that of the certificate" if "MISMATCH" in str(error.reason) else "they are none"
        raise ServingCertificateError(
            f"certificate and key cannot be used, {why}: write both there in PEM"
        ) from None
    except (OSError, ValueError) as error:
        raise ServingCertificateError(f"certificate and key cannot be used, {type(error).__name__}") from None
    finally:
        os.close(number)


# Seconds between two looks, and until the next one where a look failed.
_PERIOD = 60.0
_SOON = 5.0


class CertificateUnavailableError(Exception):
    """There is nothing to show; says why and how to remedy."""


class CertificateProvider(Protocol):
    """Knows what to show."""

    async def current(self, now: float) -> ServingCertificate:
        """What to show now. now: seconds since 1970. Raises UnavailableError."""


class CertificateRefresher:
    """tell: is given what is wrong, once until it is over; wall: gives seconds since 1970."""

    def __init__(
        self, shower: CertificateProvider, tell: Callable[[str], None], wall: Callable[[], float]
    ) -> None:
        self._shower = shower
        self._tell = tell
        self._wall = wall
        self._said = ""
        self._shown: ServingCertificate | None = None
        self._context: ssl.SSLContext | None = None

    @property
    def expires_at(self) -> float:
        """When what is shown ends, in seconds since 1970; 0 where there is nothing."""
        return self._shown.expires_at if self._shown is not None else 0.0

    def context(self) -> ssl.SSLContext:
        """What the next connection is made with. Raises UnavailableError before a turn went well."""
        if self._context is None:
            raise CertificateUnavailableError("there is no certificate yet")
        return self._context

    async def refresh(self) -> bool:
        """Look what to show. Returns whether that went well; else what was shown before stays."""
        try:
            shown = await self._shower.current(self._wall())
            if shown != self._shown:
                self._context = tls_context(shown)
                self._shown = shown
        except (CertificateUnavailableError, ServingCertificateError) as error:
            stays = "; the certificate from before is shown on" if self._shown else "; agents are not heard"
            self._say(f"{error}{stays}")
            return False
        self._said = ""
        return True

    async def wait_available(self) -> None:
        """Look until there is something to show."""
        while self._context is None:
            if not await self.refresh():
                await asyncio.sleep(_SOON)

    async def run(self) -> None:
        """Look again and again."""
        while True:
            await asyncio.sleep(_PERIOD if await self.refresh() else _SOON)

    def _say(self, what: str) -> None:
        if what != self._said:
            self._said = what
            self._tell(what)
