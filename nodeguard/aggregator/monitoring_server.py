"""The monitoring server: /metrics, /healthz and /readyz over plain HTTP."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

# Connections at a time. Everybody may connect, and must not use up the open files that agents need.
MAX_CONNECTIONS = 64

_TEXT = "text/plain; charset=utf-8"


class Page(NamedTuple):
    """One response. body: text or bytes in the content type."""

    status: int
    body: str | bytes
    content_type: str = _TEXT


# Returns a page for the Accept header of a request.
PageSource = Callable[[str], Page]


async def serve(host: str, port: int, pages: Mapping[str, PageSource]) -> web.ServerRunner:
    """Serve pages by path, for GET and HEAD; stop it with `cleanup`. Raises OSError if it cannot listen."""

    async def answer(request: web.BaseRequest) -> web.Response:
        source = pages.get(request.path)
        if source is None:
            return web.Response(status=404, text=f"not found: the pages are {', '.join(pages)}\n")
        if request.method not in {"GET", "HEAD"}:
            return web.Response(status=405, text="use GET\n", headers={"Allow": "GET, HEAD"})
        page = source(request.headers.get("Accept", ""))
        body = page.body.encode() if isinstance(page.body, str) else page.body
        return web.Response(status=page.status, body=body, headers={"Content-Type": page.content_type})

    server = _Server(answer, access_log=None, keepalive_timeout=30.0)
    runner = web.ServerRunner(server, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, host or None, port).start()
    except BaseException:
        await runner.cleanup()
        raise
    return runner


class _Server(web.Server):
    """A server with at most MAX_CONNECTIONS: a new connection replaces the oldest."""

    def __call__(self) -> RequestHandler:
        """Return the protocol of a new connection. Part of aiohttp."""
        for oldest in self.connections[: max(0, len(self.connections) - MAX_CONNECTIONS + 1)]:
            oldest.force_close()
        return super().__call__()
