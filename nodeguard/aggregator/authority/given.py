"""A certificate that the operator gives in files, read again as these change."""

from __future__ import annotations

import asyncio

from cryptography import x509

from nodeguard.aggregator.authority.showing import Showing
from nodeguard.aggregator.authority.trust import UnavailableError
from nodeguard.local.certificate_validity import expired

# Bytes of a file that is read.
_LIMIT = 256 * 1024


class Given:
    """Files in PEM: the certificate with its chain, its key, and, where agents show certificates, those of
    who signs these.
    """

    def __init__(self, certificate: str, key: str, clients: str | None = None) -> None:
        self._certificate, self._key, self._clients = certificate, key, clients

    async def showing(self, now: float) -> Showing:
        """What to show now. Raises UnavailableError."""
        return await asyncio.to_thread(self._read, now)

    def _read(self, now: float) -> Showing:
        certificate = read(self._certificate)
        try:
            until = x509.load_pem_x509_certificate(certificate.encode()).not_valid_after_utc.timestamp()
        except ValueError:
            raise UnavailableError(f"{self._certificate} holds no certificate: put it there in PEM") from None
        if now >= until:
            raise UnavailableError(f"{self._certificate}: the certificate {expired(now)}")
        clients = read(self._clients) if self._clients is not None else ""
        return Showing(certificate, read(self._key), clients, until)


def read(path: str) -> str:
    """What a file says. Raises UnavailableError."""
    try:
        with open(path, "rb") as file:
            return file.read(_LIMIT).decode("ascii")
    except OSError as error:
        raise UnavailableError(f"{path}: {error.strerror}: put it there, or set its path") from None
    except UnicodeDecodeError:
        raise UnavailableError(f"{path} is no PEM: write it there in PEM") from None
