"""The socket at which people ask the aggregator: made for root and its own user alone."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from aiohttp import web

from nodeguard.aggregator.api.pages import Asked, application
from nodeguard.local.listening import bound

# Seconds for answers under way when the server ends, and for which a connection may say nothing.
_GOODBYE = 2.0
_PATIENCE = 15.0


@asynccontextmanager
async def serving(path: str, asked: Asked) -> AsyncIterator[None]:
    """Answer at a path until the context ends; the socket is then taken away. Raises OSError where it cannot
    listen, where another aggregator does, or where something is there that is no socket.
    """
    own = bound(path, "aggregator")
    made = os.lstat(path)
    runner = web.AppRunner(
        application(asked), access_log=None, keepalive_timeout=_PATIENCE, shutdown_timeout=_GOODBYE
    )
    try:
        await runner.setup()
        await web.SockSite(runner, own).start()
        yield
    finally:
        await runner.cleanup()
        own.close()
        with suppress(OSError):
            # Another that has come since has a socket of its own there.
            if os.path.samestat(made, os.lstat(path)):
                os.unlink(path)
