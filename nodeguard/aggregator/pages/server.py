"""The server of the status page: listens at a loopback address, or at a Unix socket."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from aiohttp import web

from nodeguard.aggregator.monitoring_server import LimitedServer
from nodeguard.aggregator.pages.handler import StatusPages
from nodeguard.local.unix_socket import bind_socket


@asynccontextmanager
async def serve_pages(address: tuple[str, int] | str, pages: StatusPages) -> AsyncIterator[None]:
    """Serve the pages until the context ends. address: host and port, or the path of a Unix socket. Raises
    OSError if it cannot listen.
    """
    # A closed page ends its stream at once: the number of streams is limited.
    server = LimitedServer(pages, access_log=None, keepalive_timeout=30.0, handler_cancellation=True)
    runner = web.ServerRunner(server, shutdown_timeout=1.0)
    await runner.setup()
    created: os.stat_result | None = None
    try:
        if isinstance(address, str):
            listener = bind_socket(address, "aggregator")
            created = os.lstat(address)
            await web.SockSite(runner, listener).start()
        else:
            await web.TCPSite(runner, *address).start()
        yield
    finally:
        pages.feed.close()
        await runner.cleanup()
        with suppress(OSError):
            # Another aggregator may have replaced the socket.
            if created is not None and os.path.samestat(created, os.lstat(str(address))):
                os.unlink(str(address))
