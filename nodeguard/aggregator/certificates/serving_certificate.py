"""The serving certificate: from files, its TLS context, and its renewal without a restart."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import Callable
from math import inf
from typing import Protocol

from cryptography import x509
from msgspec import Struct

from nodeguard.config.regular_file import read_regular_file
from nodeguard.local.certificate_validity import expired_problem

logger = logging.getLogger(__name__)


class ServingCertificateError(Exception):
    """A certificate, key or CA is unusable. The message has the reason, without the key."""


class ServingCertificate(Struct, frozen=True):
    """A certificate with its chain, and its key, in PEM. client_ca: CA certificates of the clients in PEM,
    empty if they present none. expires_at, authority_expires_at: end of the certificate, and of the authority
    that signed it, in seconds since 1970; infinite if unknown.
    """

    certificate: str
    key: str
    client_ca: str = ""
    expires_at: float = inf
    authority_expires_at: float = inf

    def __repr__(self) -> str:
        return f"ServingCertificate(expires_at={self.expires_at!r})"


def tls_context(certificate: ServingCertificate) -> ssl.SSLContext:
    """Return the TLS context of a serving certificate. Raises ServingCertificateError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Agents do not resume sessions: stored sessions cost memory and outlive the certificate.
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
    context.num_tickets = 0
    _load(context, certificate)
    if certificate.client_ca:
        # A client without a certificate gets an HTTP response with the reason.
        context.verify_mode = ssl.CERT_OPTIONAL
        try:
            context.load_verify_locations(cadata=certificate.client_ca)
        except (ssl.SSLError, ValueError):
            raise ServingCertificateError(
                "the client CA is not valid PEM: write the CA certificate in PEM"
            ) from None
    return context


def _load(context: ssl.SSLContext, certificate: ServingCertificate) -> None:
    """Load the certificate through memory: the key is not written to a disk."""
    number = os.memfd_create("nodeguard", os.MFD_CLOEXEC)
    try:
        os.write(number, f"{certificate.key}\n{certificate.certificate}\n".encode())
        # A key with a password is refused: do not ask on a terminal.
        context.load_cert_chain(f"/proc/self/fd/{number}", password="")
    except ssl.SSLError as error:
        is_mismatch = "MISMATCH" in str(error.reason)
        reason = "the key does not match the certificate" if is_mismatch else "they are invalid"
        raise ServingCertificateError(
            f"certificate and key cannot be used, {reason}: write both in PEM"
        ) from None
    except (OSError, ValueError) as error:
        raise ServingCertificateError(f"certificate and key cannot be used, {type(error).__name__}") from None
    finally:
        os.close(number)


# Seconds between two refreshes, and after a refresh that failed.
_PERIOD = 60.0
_RETRY = 5.0


class CertificateUnavailableError(Exception):
    """There is no certificate. The message has the reason and the remedy."""


class CertificateProvider(Protocol):
    """A source of the serving certificate."""

    async def current(self, now: float) -> ServingCertificate:
        """Return the certificate. now: seconds since 1970. Raises CertificateUnavailableError."""


class CertificateRefresher:
    """Keeps the TLS context up to date. wall: returns seconds since 1970."""

    def __init__(self, provider: CertificateProvider, wall: Callable[[], float]) -> None:
        self._provider = provider
        self._wall = wall
        # Why the latest refresh failed; empty if it succeeded.
        self._problem = ""
        self._certificate: ServingCertificate | None = None
        self._context: ssl.SSLContext | None = None

    @property
    def certificate(self) -> ServingCertificate | None:
        """Return the certificate in use; None before there is one."""
        return self._certificate

    def context(self) -> ssl.SSLContext:
        """Return the current TLS context. Raises CertificateUnavailableError before there is one."""
        if self._context is None:
            raise CertificateUnavailableError("there is no certificate yet")
        return self._context

    async def refresh(self) -> bool:
        """Get the current certificate. Returns whether that succeeded; else the previous one stays in use."""
        try:
            certificate = await self._provider.current(self._wall())
            if certificate != self._certificate:
                self._context = tls_context(certificate)
                self._certificate = certificate
        except (CertificateUnavailableError, ServingCertificateError) as error:
            self._problem = str(error)
            if self._certificate is None:
                logger.error(  # noqa: TRY400 - the message has the reason
                    "no serving certificate, agents cannot connect", extra={"error": str(error)}
                )
            else:
                logger.warning(
                    "cannot renew the serving certificate, the previous one stays in use",
                    extra={"error": str(error)},
                )
            return False
        if self._problem:
            self._problem = ""
            logger.info("the serving certificate is up to date again")
        return True

    async def wait_available(self, on_failed: Callable[[str], object] = lambda _: None) -> None:
        """Refresh until there is a certificate. on_failed: receives the reason of each failure."""
        while self._context is None:
            if not await self.refresh():
                on_failed(self._problem)
                await asyncio.sleep(_RETRY)

    async def run(self) -> None:
        """Refresh periodically."""
        while True:
            await asyncio.sleep(_PERIOD if await self.refresh() else _RETRY)


# Bytes of a file that is read.
_LIMIT = 256 * 1024


class FileCertificate:
    """PEM files: the certificate with its chain, its key, and, if agents present certificates, their CA."""

    def __init__(self, certificate: str, key: str, client_ca: str | None = None) -> None:
        self._certificate, self._key, self._client_ca = certificate, key, client_ca

    async def current(self, now: float) -> ServingCertificate:
        """Return the certificate. Raises CertificateUnavailableError."""
        return await asyncio.to_thread(self._read, now)

    def _read(self, now: float) -> ServingCertificate:
        certificate = read_pem(self._certificate)
        try:
            until = x509.load_pem_x509_certificate(certificate.encode()).not_valid_after_utc.timestamp()
        except ValueError:
            raise CertificateUnavailableError(
                f"{self._certificate} has no certificate: write it in PEM"
            ) from None
        if now >= until:
            raise CertificateUnavailableError(f"{self._certificate}: the certificate {expired_problem(now)}")
        client_ca = read_pem(self._client_ca) if self._client_ca is not None else ""
        return ServingCertificate(certificate, read_pem(self._key), client_ca, until)


def read_pem(path: str) -> str:
    """Return the content of a PEM file. Raises CertificateUnavailableError."""
    try:
        return read_regular_file(path, _LIMIT).decode("ascii")
    except OSError as error:
        raise CertificateUnavailableError(
            f"{path}: {error.strerror}: create it, or correct the path"
        ) from None
    except UnicodeDecodeError:
        raise CertificateUnavailableError(f"{path} is not a PEM file: write it in PEM") from None
