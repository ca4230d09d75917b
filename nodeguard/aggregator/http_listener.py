"""HTTP listeners of the aggregator: at an address or a Unix socket, and a server with a connection limit."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestHandler

from nodeguard.local.unix_socket import bind_socket, listen_again_when_removed

# Connections at a time. Any client may connect, and must not use up the open files that agents need.
MAX_CONNECTIONS = 64

# Returns the response to a request.
Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


def _is_fault(record: logging.LogRecord) -> bool:
    """Return whether a record is about more than a request that is no HTTP: its sender has the answer 400."""
    return record.exc_info is None or not isinstance(record.exc_info[1], HttpProcessingError)


logger = logging.getLogger(__name__)
logger.addFilter(_is_fault)


class LimitedServer(web.Server):
    """A server with at most MAX_CONNECTIONS: a new connection replaces the oldest. A malformed request writes
    nothing to the log: any client can send one.
    """

    def __init__(self, answer: Handler, *, handler_cancellation: bool = False) -> None:
        """answer: returns the response to a request. handler_cancellation: whether the end of a connection
        cancels it.
        """
        super().__init__(
            answer,
            handler_cancellation=handler_cancellation,
            access_log=None,
            keepalive_timeout=30.0,
            logger=logger,
        )

    def __call__(self) -> RequestHandler:
        """Return the protocol of a new connection. Part of aiohttp."""
        for oldest in self.connections[: max(0, len(self.connections) - MAX_CONNECTIONS + 1)]:
            oldest.force_close()
        return super().__call__()


@asynccontextmanager
async def listening(runner: web.BaseRunner, address: tuple[str, int] | str) -> AsyncIterator[None]:
    """Set up a runner and listen until the context ends. address: host and port, no host for all; or the path
    of a Unix socket. Raises OSError if it cannot listen, or if the path is used by another aggregator or is
    not a socket.
    """
    await runner.setup()
    try:
        if isinstance(address, str):
            async with _listening_at_path(runner, address):
                yield
        else:
            host, port = address
            await web.TCPSite(runner, host or None, port).start()
            yield
    finally:
        await runner.cleanup()


@asynccontextmanager
async def _listening_at_path(runner: web.BaseRunner, path: str) -> AsyncIterator[None]:
    """Listen at the path of a Unix socket until the context ends, also after the socket was removed."""
    site: web.SockSite | None = None
    created: os.stat_result | None = None

    async def listen() -> None:
        nonlocal site, created
        listener = bind_socket(path, "aggregator")
        created = os.lstat(path)
        if site is not None:
            await site.stop()
        site = web.SockSite(runner, listener)
        await site.start()

    await listen()
    watch = asyncio.create_task(listen_again_when_removed(path, listen))
    try:
        yield
    finally:
        watch.cancel()
        with suppress(OSError):
            # Another aggregator may have replaced the socket.
            if created is not None and os.path.samestat(created, os.lstat(path)):
                os.unlink(path)
