"""A certificate that the operator gives in files, read again as these change."""

from __future__ import annotations

import asyncio

from cryptography import x509

from nodeguard.aggregator.certificates.serving_certificate import (
    CertificateUnavailableError,
    ServingCertificate,
)
from nodeguard.local.certificate_validity import expired_problem

# Bytes of a file that is read.
_LIMIT = 256 * 1024


class FileCertificate:
    """Files in PEM: the certificate with its chain, its key, and, where agents show certificates, those of
    who signs these.
    """

    def __init__(self, certificate: str, key: str, clients: str | None = None) -> None:
        self._certificate, self._key, self._clients = certificate, key, clients

    async def current(self, now: float) -> ServingCertificate:
        """What to show now. Raises UnavailableError."""
        return await asyncio.to_thread(self._read, now)

    def _read(self, now: float) -> ServingCertificate:
        certificate = read_pem(self._certificate)
        try:
            until = x509.load_pem_x509_certificate(certificate.encode()).not_valid_after_utc.timestamp()
        except ValueError:
            raise CertificateUnavailableError(
                f"{self._certificate} holds no certificate: put it there in PEM"
            ) from None
        if now >= until:
            raise CertificateUnavailableError(f"{self._certificate}: the certificate {expired_problem(now)}")
        clients = read_pem(self._clients) if self._clients is not None else ""
        return ServingCertificate(certificate, read_pem(self._key), clients, until)


def read_pem(path: str) -> str:
    """What a file says. Raises UnavailableError."""
    try:
        with open(path, "rb") as file:
            return file.read(_LIMIT).decode("ascii")
    except OSError as error:
        raise CertificateUnavailableError(
            f"{path}: {error.strerror}: put it there, or set its path"
        ) from None
    except UnicodeDecodeError:
        raise CertificateUnavailableError(f"{path} is no PEM: write it there in PEM") from None
