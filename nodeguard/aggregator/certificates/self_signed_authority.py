"""The self-signed authority: shared by both replicas through a store, it issues the serving certificate."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from math import inf
from typing import Protocol

from msgspec.structs import replace

from nodeguard.aggregator.certificates.issue import (
    SigningError,
    bundle_certificates,
    issue_authority,
    issue_serving_certificate,
    subject_alternative_names,
)
from nodeguard.aggregator.certificates.rotation import (
    MAX_AUTHORITIES,
    SERVING_LIFETIME,
    AuthorityState,
    CertificateAuthority,
    UnreadableStateError,
    add_authority,
    ca_bundle,
    decode_state,
    encode_state,
    mark_published,
    next_step,
    retain_published,
    retire_authorities,
    retired_from,
    signing_authority,
    signs_from,
)
from nodeguard.aggregator.certificates.serving_certificate import (
    CertificateUnavailableError,
    ServingCertificate,
    read_pem,
)
from nodeguard.local.certificate_validity import expired_problem
from nodeguard.model.instant import rfc3339
from nodeguard.model.stored_authority import StoreConflictError, Stored, StoreError

logger = logging.getLogger(__name__)

# Steps of one update: more than are ever needed.
_STEPS = 12


class AuthorityStore(Protocol):
    """Stores the state of the authority. See model.stored_authority."""

    name: str

    async def read(self) -> Stored:
        """Return the stored state and bundle; the bundle is read first. Raises StoreError."""

    async def keep(self, state: bytes, before: Stored) -> None:
        """Write a state. Raises StoreConflictError, StoreError."""

    async def publish(self, bundle: str, before: Stored) -> None:
        """Write the CA bundle for agents. Raises StoreConflictError, StoreError."""


class RotationError(Exception):
    """The authority cannot be rotated now. The message has the reason and the remedy."""


class SelfSignedAuthority:
    """A certificate authority for the serving certificate.

    hosts: names and addresses of this server. client_ca: PEM file of the CA of the agents' certificates, None
    if these present none. Raises InvalidHostError.
    """

    def __init__(
        self,
        store: AuthorityStore,
        hosts: Sequence[str],
        client_ca: str | None = None,
    ) -> None:
        subject_alternative_names(hosts)
        self._store = store
        self._hosts = tuple(hosts)

        self._client_ca = client_ca
        self._state = AuthorityState()
        self._signed: tuple[CertificateAuthority, ServingCertificate] | None = None

    async def current(self, now: float) -> ServingCertificate:
        """Return the serving certificate. Raises CertificateUnavailableError if the state was never read."""
        try:
            await self._update(now)
        except StoreError as error:
            if signing_authority(self._state, now) is None:
                message = f"the aggregator's certificate authority: {error}"
                raise CertificateUnavailableError(message) from None
            logger.warning(
                "cannot update the certificate authority, the previous one stays in use",
                extra={"error": str(error)},
            )
        client_ca = await asyncio.to_thread(read_pem, self._client_ca) if self._client_ca is not None else ""
        return replace(self._current(now), client_ca=client_ca)

    async def read(self) -> AuthorityState:
        """Return the stored state. Raises StoreError."""
        return self._decoded(await self._store.read())

    @property
    def store_name(self) -> str:
        """Return where the authorities are stored."""
        return self._store.name

    async def rotate(self, by: str, now: float) -> str:
        """Add an authority, and publish it. by: the operator. Returns a message for the operator.

        Raises RotationError, and StoreError.
        """
        for _ in range(_STEPS):
            stored = await self._store.read()
            state = self._decoded(stored)
            if not state.authorities:
                raise RotationError("there is no certificate authority yet: wait a minute")
            if now < (trusted_at := signs_from(state.authorities[-1])):
                soon = rfc3339(trusted_at) if trusted_at != inf else "its publication"
                raise RotationError(f"not every agent trusts the newest authority yet: rotate after {soon}")
            if len(state.authorities) >= MAX_AUTHORITIES:
                raise RotationError("earlier authorities are still in use: see nodeguard authority show")
            try:
                await self._store.keep(encode_state(add_authority(state, issue_authority(now))), stored)
            except StoreConflictError:
                continue
            logger.info("rotates the certificate authority", extra={"by": by, "store": self._store.name})
            await self._update(now)
            return (
                f"agents get a new certificate authority now; it signs from "
                f"{rfc3339(signs_from(self._state.authorities[-1]))} on, and the old one is trusted until "
                f"{rfc3339(retired_from(self._state))}"
            )
        raise self._contended()

    async def _update(self, now: float) -> None:
        for _ in range(_STEPS):
            stored = await self._store.read()
            state = self._decoded(stored)
            try:
                if not await self._step(state, stored, now):
                    self._state = state
                    return
            except StoreConflictError:
                continue
        raise self._contended()

    def _decoded(self, stored: Stored) -> AuthorityState:
        try:
            return decode_state(stored.state)
        except UnreadableStateError as error:
            raise StoreError(f"{self._store.name} cannot be used, {error}: delete it") from None

    def _contended(self) -> StoreError:
        return StoreError(f"{self._store.name} is changed by others all the time: find out by whom")

    async def _add(self, state: AuthorityState, stored: Stored, now: float) -> None:
        """Add an authority. If the stored ones were deleted, this process still has them, or their published
        certificates are left.
        """
        effect = ""
        if not state.authorities and self._state.authorities:
            state = self._state
            effect = "the previous authority stays until every agent trusts the new one"
        elif not state.authorities and (published := bundle_certificates(stored.bundle, now)):
            state = retain_published(state, published, now)
            effect = "agents cannot connect until their nodes have the new certificate, about two minutes"
        if effect:
            fields = {
                "store": self._store.name,
                "effect": effect,
                "remedy": "to rotate the authority, use nodeguard authority rotate",
            }
            logger.warning("the certificate authority was deleted, a new one is created", extra=fields)
        await self._store.keep(encode_state(add_authority(state, issue_authority(now))), stored)

    async def _step(self, state: AuthorityState, stored: Stored, now: float) -> bool:
        """Take the next step, if there is one. Returns whether there was one."""
        match next_step(state, stored.bundle, now):
            case "add":
                await self._add(state, stored, now)
            case "publish":
                await self._store.publish(ca_bundle(state), stored)
            case "mark":
                await self._store.keep(encode_state(mark_published(state, now)), stored)
            case "retire":
                await self._store.keep(encode_state(retire_authorities(state, now)), stored)
            case "nothing":
                return False
        return True

    def _current(self, now: float) -> ServingCertificate:
        by = signing_authority(self._state, now)
        if by is None:
            raise CertificateUnavailableError(
                f"the aggregator's certificate authority {expired_problem(now)}"
            )
        if self._signed is not None and self._signed[0].certificate == by.certificate:
            certificate = self._signed[1]
            # Renew at half of the lifetime: that leaves time for errors.
            if (
                now
                < certificate.expires_at - min(SERVING_LIFETIME, certificate.expires_at - by.created_at) / 2
            ):
                return certificate
        try:
            certificate = issue_serving_certificate(by, self._hosts, now)
        except SigningError as error:
            raise CertificateUnavailableError(
                f"{self._store.name} cannot be used, {error}: delete it"
            ) from None
        self._signed = (by, certificate)
        return certificate
