"""The serving certificate from files, read again when they change."""

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
        with open(path, "rb") as file:
            return file.read(_LIMIT).decode("ascii")
    except OSError as error:
        raise CertificateUnavailableError(
            f"{path}: {error.strerror}: create it, or correct the path"
        ) from None
    except UnicodeDecodeError:
        raise CertificateUnavailableError(f"{path} is not a PEM file: write it in PEM") from None
