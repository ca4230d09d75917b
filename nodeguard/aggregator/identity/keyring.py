"""The cluster's keys as they are now: asked for again from time to time, and when a token names another."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from nodeguard.aggregator.identity.keys import Keys, KeysError, keys

# Seconds: between two requests at least, and after which the keys are asked for although nobody misses any.
BETWEEN = 10.0
PERIOD = 300.0


class UnavailableError(Exception):
    """The cluster did not say; says why, without anything secret."""


# The issuer and the document of keys. Raises UnavailableError.
Fetch = Callable[[], Awaitable[tuple[str, bytes]]]


class Keyring:
    """Keys that were fetched once stay good while the cluster cannot be asked.

    tell: is given what is wrong, once until it is over.
    """

    def __init__(self, fetch: Fetch, tell: Callable[[str], None]) -> None:
        self.keys: Keys | None = None
        self._fetch = fetch
        self._tell = tell
        self._said = ""
        self._asked = float("-inf")
        self._fetching: asyncio.Task[None] | None = None

    def is_due(self, now: float) -> bool:
        """Whether it is time to ask again though no key is missed. now: as in refresh."""
        return now >= self._asked + (BETWEEN if self.keys is None else PERIOD)

    async def refresh(self, now: float) -> None:
        """Ask for the keys, unless that was a moment ago: so no caller decides how often. Never raises.

        Whoever comes while that is under way waits for it. now: seconds of a clock that never jumps.
        """
        if self._fetching is None:
            if now < self._asked + BETWEEN:
                return
            self._asked = now
            self._fetching = asyncio.create_task(self._get())
            self._fetching.add_done_callback(self._got)
        await asyncio.shield(self._fetching)

    async def run(self, clock: Callable[[], float]) -> None:
        """Ask again and again. clock: seconds of a clock that never jumps."""
        while True:
            if self.is_due(clock()):
                await self.refresh(clock())
            await asyncio.sleep(BETWEEN)

    def _got(self, _task: asyncio.Task[None]) -> None:
        self._fetching = None

    async def _get(self) -> None:
        try:
            self.keys = keys(*await self._fetch())
            self._said = ""
        except (KeysError, UnavailableError) as error:
            going_on = "those known so far stay good" if self.keys else "agents wait until it does"
            self._say(f"the cluster does not give the keys of its tokens: {error}; {going_on}")

    def _say(self, what: str) -> None:
        if what != self._said:
            self._said = what
            self._tell(what)
