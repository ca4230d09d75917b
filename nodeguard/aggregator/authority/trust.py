"""The certificate that the server shows now, whoever made it; renewed without a restart."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Protocol

from nodeguard.aggregator.authority.showing import Showing, ShowingError, context

# Seconds between two looks, and until the next one where a look failed.
_PERIOD = 60.0
_SOON = 5.0


class UnavailableError(Exception):
    """There is nothing to show; says why and how to remedy."""


class Shower(Protocol):
    """Knows what to show."""

    async def showing(self, now: float) -> Showing:
        """What to show now. now: seconds since 1970. Raises UnavailableError."""


class Trust:
    """tell: is given what is wrong, once until it is over; wall: gives seconds since 1970."""

    def __init__(self, shower: Shower, tell: Callable[[str], None], wall: Callable[[], float]) -> None:
        self._shower = shower
        self._tell = tell
        self._wall = wall
        self._said = ""
        self._shown: Showing | None = None
        self._context: ssl.SSLContext | None = None

    @property
    def until(self) -> float:
        """When what is shown ends, in seconds since 1970; 0 where there is nothing."""
        return self._shown.until if self._shown is not None else 0.0

    def context(self) -> ssl.SSLContext:
        """What the next connection is made with. Raises UnavailableError before a turn went well."""
        if self._context is None:
            raise UnavailableError("there is no certificate yet")
        return self._context

    async def turn(self) -> bool:
        """Look what to show. Returns whether that went well; else what was shown before stays."""
        try:
            shown = await self._shower.showing(self._wall())
            if shown != self._shown:
                self._context = context(shown)
                self._shown = shown
        except (UnavailableError, ShowingError) as error:
            stays = "; the certificate from before is shown on" if self._shown else "; agents are not heard"
            self._say(f"{error}{stays}")
            return False
        self._said = ""
        return True

    async def begin(self) -> None:
        """Look until there is something to show."""
        while self._context is None:
            if not await self.turn():
                await asyncio.sleep(_SOON)

    async def run(self) -> None:
        """Look again and again."""
        while True:
            await asyncio.sleep(_PERIOD if await self.turn() else _SOON)

    def _say(self, what: str) -> None:
        if what != self._said:
            self._said = what
            self._tell(what)
