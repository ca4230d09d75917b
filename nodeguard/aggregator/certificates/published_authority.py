"""The serving certificate of another issuer, such as cert-manager, with its CA published to agents."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from datetime import UTC, datetime

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from msgspec.structs import replace

from nodeguard.aggregator.certificates.serving_certificate import (
    CertificateUnavailableError,
    FileCertificate,
    ServingCertificate,
    read_pem,
)
from nodeguard.model.stored_text import StoreConflictError, StoredText, StoreError, TextStore

logger = logging.getLogger(__name__)

# Certificates of the published bundle at most, and attempts to write it while others do.
_MAX_CERTIFICATES = 8
MAX_TRIES = 5


class PublishedCertificate:
    """A certificate of files. authority: PEM file of the CA that signed it, which is published in a store.

    Agents read the CA from there, because they must not be able to read a Secret that also has the key.
    """

    def __init__(self, files: FileCertificate, authority: str, bundle: TextStore) -> None:
        self._files = files
        self._authority = authority
        self._bundle = bundle

    async def current(self, now: float) -> ServingCertificate:
        """Return the certificate, after its CA is published. Raises CertificateUnavailableError."""
        certificate = await self._files.current(now)
        own = loaded_certificates(await asyncio.to_thread(read_pem, self._authority))
        if not own:
            raise CertificateUnavailableError(
                f"{self._authority} has no certificate: use an issuer that writes its CA there"
            )
        try:
            await self._publish(own, now)
        except StoreError as error:
            logger.warning("cannot publish the CA certificate to agents", extra={"error": str(error)})
        ends = (authority.not_valid_after_utc.timestamp() for authority in own)
        return replace(certificate, authority_expires_at=min(ends))

    async def _publish(self, own: list[x509.Certificate], now: float) -> None:
        for _ in range(MAX_TRIES):
            try:
                await publish_authorities(self._bundle, await self._bundle.read(), own, now)
            except StoreConflictError:
                continue
            return
        raise contended(self._bundle)


async def publish_authorities(
    bundle: TextStore, published: StoredText, own: list[x509.Certificate], now: float
) -> None:
    """Publish own CA certificates to agents, beside those that are published and valid.

    now: seconds since 1970. Raises StoreConflictError, StoreError.
    """
    text = merged_bundle(own, loaded_certificates(published.text), now)
    if text != published.text:
        await bundle.write(text, published)
        logger.info("published the CA certificate to agents", extra={"store": bundle.name})


def contended(store: TextStore) -> StoreError:
    """Return the error of too many conflicts."""
    return StoreError(f"{store.name} is changed by others all the time: find out by whom")


def merged_bundle(own: Iterable[x509.Certificate], published: Iterable[x509.Certificate], now: float) -> str:
    """Return the bundle to publish in PEM: with all own certificates, and those that are published and valid.

    Others stay, because another replica may still serve a certificate that they signed. now: seconds since
    1970.
    """
    at = datetime.fromtimestamp(now, UTC)
    valid = [certificate for certificate in published if certificate.not_valid_after_utc > at]
    new = [certificate for certificate in own if certificate not in valid]
    bundle = (*new, *valid)[:_MAX_CERTIFICATES]
    return "".join(certificate.public_bytes(Encoding.PEM).decode() for certificate in bundle)


def loaded_certificates(text: str) -> list[x509.Certificate]:
    """Return the certificates of a PEM text; none if it is invalid."""
    try:
        return x509.load_pem_x509_certificates(text.encode())
    except ValueError:
        return []
