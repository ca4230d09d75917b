"""Keeps the aggregator's own authority together with the other replica, and signs what this one shows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec.structs import replace

from nodeguard.aggregator.authority.certificates import SigningError, alternatives, generation, serving
from nodeguard.aggregator.authority.given import read
from nodeguard.aggregator.authority.rotation import (
    SERVING,
    Generation,
    State,
    UnreadableStateError,
    added,
    bundle,
    decoded,
    encoded,
    marked,
    retired,
    signer,
    what_to_do,
)
from nodeguard.aggregator.authority.showing import Showing
from nodeguard.aggregator.authority.trust import UnavailableError
from nodeguard.local.certificate_validity import expired
from nodeguard.model.stored import StoreConflictError, Stored, StoreError

# Steps in one look; there are never so many to be taken.
_STEPS = 12


class Store(Protocol):
    """Keeps the state. See model.stored."""

    name: str

    async def read(self) -> Stored:
        """What is kept; the bundle is read before the state. Raises StoreError."""

    async def keep(self, state: bytes, before: Stored) -> None:
        """Write a state. Raises StoreConflictError, StoreError."""

    async def publish(self, bundle: str, before: Stored) -> None:
        """Write what agents read. Raises StoreConflictError, StoreError."""


class Keeper:
    """hosts: names and addresses under which agents reach this server. tell: is given what is wrong with the
    store, once until it is over. clients: a file of certificates in PEM of who signs those of agents, None
    where these show none. Raises HostError.
    """

    def __init__(
        self,
        store: Store,
        hosts: Sequence[str],
        tell: Callable[[str], None],
        clients: str | None = None,
    ) -> None:
        alternatives(hosts)
        self._store = store
        self._hosts = tuple(hosts)
        self._tell = tell
        self._clients = clients
        self._said = ""
        self._state = State()
        self._signed: tuple[Generation, Showing] | None = None

    async def showing(self, now: float) -> Showing:
        """What to show now. Raises UnavailableError where the state cannot be had, and none was before."""
        try:
            await self._look(now)
            self._said = ""
        except StoreError as error:
            why = f"the authority of the aggregator's certificate: {error}"
            if signer(self._state, now) is None:
                raise UnavailableError(why) from None
            if why != self._said:
                self._said = why
                self._tell(f"{why}; the one that is known is used on")
        clients = await asyncio.to_thread(read, self._clients) if self._clients is not None else ""
        return replace(self._current(now), clients=clients)

    async def _look(self, now: float) -> None:
        for _ in range(_STEPS):
            stored = await self._store.read()
            try:
                state = decoded(stored.state)
            except UnreadableStateError as error:
                raise StoreError(f"{self._store.name} cannot be used, {error}: delete it") from None
            try:
                if not await self._step(state, stored, now):
                    self._state = state
                    return
            except StoreConflictError:
                continue
        raise StoreError(f"{self._store.name} is written by others again and again: see who does that")

    async def _step(self, state: State, stored: Stored, now: float) -> bool:
        """Do what there is to do, if anything."""
        match what_to_do(state, stored.bundle, now):
            case "add":
                await self._store.keep(encoded(added(state, generation(now))), stored)
            case "publish":
                await self._store.publish(bundle(state), stored)
            case "mark":
                await self._store.keep(encoded(marked(state, now)), stored)
            case "retire":
                await self._store.keep(encoded(retired(state, now)), stored)
            case "nothing":
                return False
        return True

    def _current(self, now: float) -> Showing:
        by = signer(self._state, now)
        if by is None:
            raise UnavailableError(f"the authority of the aggregator's certificate {expired(now)}")
        if self._signed is not None and self._signed[0].certificate == by.certificate:
            shown = self._signed[1]
            # Halfway: there is time for whatever hinders the next one.
            if now < shown.until - min(SERVING, shown.until - by.made) / 2:
                return shown
        try:
            shown = serving(by, self._hosts, now)
        except SigningError as error:
            raise UnavailableError(f"{self._store.name} cannot be used, {error}: delete it") from None
        self._signed = (by, shown)
        return shown
