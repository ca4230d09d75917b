"""The self-signed authority: shared by both replicas through a store, it issues the serving certificate.

It is created once, for ten years, and never replaced by itself: what an operator deletes is created again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from nodeguard.aggregator.certificates.issue import (
    UNUSABLE_REMEDY,
    CertificateAuthority,
    SigningError,
    issue_authority,
    issue_serving_certificate,
    subject_alternative_names,
)
from nodeguard.aggregator.certificates.published_authority import (
    MAX_TRIES,
    contended,
    loaded_certificates,
    publish_authorities,
)
from nodeguard.aggregator.certificates.serving_certificate import (
    CertificateUnavailableError,
    ServingCertificate,
    read_pem,
)
from nodeguard.local.certificate_validity import expired_problem
from nodeguard.model.json_decoder import JsonDecoder
from nodeguard.model.stored_text import StoreConflictError, StoredText, StoreError, TextStore

logger = logging.getLogger(__name__)


class _StoredAuthorities(Struct, frozen=True):
    """The stored form. Earlier versions stored several authorities, oldest first, while they replaced one."""

    version: int = 1
    authorities: tuple[CertificateAuthority, ...] = ()


class SelfSignedAuthority:
    """A certificate authority for the serving certificate.

    store: its key; bundle: its certificate, for agents. hosts: names and addresses of this server. client_ca:
    PEM file of the CA of the agents' certificates, None if these present none. Raises InvalidHostError.
    """

    def __init__(
        self, store: TextStore, bundle: TextStore, hosts: Sequence[str], client_ca: str | None = None
    ) -> None:
        subject_alternative_names(hosts)
        self._store = store
        self._bundle = bundle
        self._hosts = tuple(hosts)
        self._client_ca = client_ca
        self._authorities: tuple[CertificateAuthority, ...] = ()
        self._signed: tuple[CertificateAuthority, ServingCertificate] | None = None
        self._signed_at = 0.0
        self._renew_at = 0.0

    async def current(self, now: float) -> ServingCertificate:
        """Return the serving certificate. Raises CertificateUnavailableError if the store was never read."""
        try:
            await self._update(now)
        except StoreError as error:
            if not self._authorities:
                message = f"the aggregator's certificate authority: {error}"
                raise CertificateUnavailableError(message) from None
            logger.warning(
                "cannot update the certificate authority, the previous one stays in use",
                extra={"error": str(error)},
            )
        client_ca = await asyncio.to_thread(read_pem, self._client_ca) if self._client_ca is not None else ""
        return replace(self._current(now), client_ca=client_ca)

    async def _update(self, now: float) -> None:
        """Read the authorities, create one if there is none, and publish their certificates."""
        for _ in range(MAX_TRIES):
            # The bundle is read first: an operator deletes the authority first, and then the bundle. So a
            # deleted authority is not published again.
            published = await self._bundle.read()
            stored = await self._store.read()
            try:
                authorities = self._decoded(stored) if stored.version else await self._create(stored, now)
                own = loaded_certificates("".join(authority.certificate for authority in authorities))
                await publish_authorities(self._bundle, published, own, now)
            except StoreConflictError:
                continue
            self._authorities = authorities
            return
        raise contended(self._store)

    async def _create(self, missing: StoredText, now: float) -> tuple[CertificateAuthority, ...]:
        authorities = (issue_authority(now),)
        text = msgspec.json.encode(_StoredAuthorities(authorities=authorities)).decode()
        await self._store.write(text, missing)
        logger.info("created a certificate authority", extra={"store": self._store.name})
        return authorities

    def _decoded(self, stored: StoredText) -> tuple[CertificateAuthority, ...]:
        """Return the stored authorities, at least one. Raises StoreError."""
        try:
            decoded = JsonDecoder(_StoredAuthorities).decode(stored.text)
        except msgspec.DecodeError:
            decoded = _StoredAuthorities()
        problem = "it has no authority: "
        if decoded.version != 1:
            problem = f"it was written by a newer version ({decoded.version}): upgrade, or "
        elif decoded.authorities:
            return decoded.authorities
        raise StoreError(f"{self._store.name} cannot be used, {problem}{UNUSABLE_REMEDY}")

    def _current(self, now: float) -> ServingCertificate:
        # Agents have known the oldest one for the longest time.
        by = next((authority for authority in self._authorities if now < authority.expires_at), None)
        if by is None:
            problem = f"the aggregator's certificate authority {expired_problem(now)}"
            raise CertificateUnavailableError(f"{problem}: delete {self._store.name}")
        # After a step back of the clock, the certificate is not valid yet.
        is_current = self._signed_at <= now < self._renew_at
        if self._signed is not None and self._signed[0] == by and is_current:
            return self._signed[1]
        try:
            certificate = issue_serving_certificate(by, self._hosts, now)
        except SigningError as error:
            raise CertificateUnavailableError(f"{self._store.name} cannot be used, {error}") from None
        self._signed, self._signed_at = (by, certificate), now
        # Half of the lifetime is left for errors.
        self._renew_at = (now + certificate.expires_at) / 2
        return certificate
