"""Keeps the aggregator's own authority together with the other replica, and signs what this one shows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec.structs import replace

from nodeguard.aggregator.certificates.file_certificate import read_pem
from nodeguard.aggregator.certificates.issue import (
    SigningError,
    issue_authority,
    issue_serving_certificate,
    subject_alternative_names,
)
from nodeguard.aggregator.certificates.rotation import (
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
    retire_authorities,
    signing_authority,
)
from nodeguard.aggregator.certificates.serving_certificate import (
    CertificateUnavailableError,
    ServingCertificate,
)
from nodeguard.aggregator.certificates.stored import StoreConflictError, Stored, StoreError
from nodeguard.local.certificate_validity import expired_problem

# Steps in one look; there are never so many to be taken.
_STEPS = 12


class AuthorityStore(Protocol):
    """Keeps the state. See model.stored."""

    name: str

    async def read(self) -> Stored:
        """What is kept; the bundle is read before the state. Raises StoreError."""

    async def keep(self, state: bytes, before: Stored) -> None:
        """Write a state. Raises StoreConflictError, StoreError."""

    async def publish(self, bundle: str, before: Stored) -> None:
        """Write what agents read. Raises StoreConflictError, StoreError."""


class SelfSignedAuthority:
    """hosts: names and addresses under which agents reach this server. tell: is given what is wrong with the
    store, once until it is over. clients: a file of certificates in PEM of who signs those of agents, None
    where these show none. Raises HostError.
    """

    def __init__(
        self,
        store: AuthorityStore,
        hosts: Sequence[str],
        tell: Callable[[str], None],
        clients: str | None = None,
    ) -> None:
        subject_alternative_names(hosts)
        self._store = store
        self._hosts = tuple(hosts)
        self._tell = tell
        self._clients = clients
        self._said = ""
        self._state = AuthorityState()
        self._signed: tuple[CertificateAuthority, ServingCertificate] | None = None

    async def current(self, now: float) -> ServingCertificate:
        """What to show now. Raises UnavailableError where the state cannot be had, and none was before."""
        try:
            await self._look(now)
            self._said = ""
        except StoreError as error:
            why = f"the authority of the aggregator's certificate: {error}"
            if signing_authority(self._state, now) is None:
                raise CertificateUnavailableError(why) from None
            if why != self._said:
                self._said = why
                self._tell(f"{why}; the one that is known is used on")
        clients = await asyncio.to_thread(read_pem, self._clients) if self._clients is not None else ""
        return replace(self._current(now), clients=clients)

    async def _look(self, now: float) -> None:
        for _ in range(_STEPS):
            stored = await self._store.read()
            try:
                state = decode_state(stored.state)
            except UnreadableStateError as error:
                raise StoreError(f"{self._store.name} cannot be used, {error}: delete it") from None
            try:
                if not await self._step(state, stored, now):
                    self._state = state
                    return
            except StoreConflictError:
                continue
        raise StoreError(f"{self._store.name} is written by others again and again: see who does that")

    async def _step(self, state: AuthorityState, stored: Stored, now: float) -> bool:
        """Do what there is to do, if anything."""
        match next_step(state, stored.bundle, now):
            case "add":
                await self._store.keep(encode_state(add_authority(state, issue_authority(now))), stored)
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
                f"the authority of the aggregator's certificate {expired_problem(now)}"
            )
        if self._signed is not None and self._signed[0].certificate == by.certificate:
            shown = self._signed[1]
            # Halfway: there is time for whatever hinders the next one.
            if now < shown.expires_at - min(SERVING_LIFETIME, shown.expires_at - by.created_at) / 2:
                return shown
        try:
            shown = issue_serving_certificate(by, self._hosts, now)
        except SigningError as error:
            raise CertificateUnavailableError(
                f"{self._store.name} cannot be used, {error}: delete it"
            ) from None
        self._signed = (by, shown)
        return shown
