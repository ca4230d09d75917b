"""The aggregator's pages for machines: /metrics, /healthz and /readyz, over plain HTTP."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from nodeguard.wire.exposition import CONTENT_TYPE

# Status and text.
Page = Callable[[], tuple[int, str]]

# Connections at a time. Anybody may connect, and must not use up the open files of those who report.
MAX_CONNECTIONS = 64


async def serve(host: str, port: int, pages: dict[str, Page]) -> web.ServerRunner:
    """Serve pages by path, to GET alone; ended by `cleanup`. Raises OSError where it cannot listen."""

    async def answer(request: web.BaseRequest) -> web.Response:
        page = pages.get(request.path)
        if page is None:
            return web.Response(status=404, text=f"there is {', '.join(pages)}\n")
        if request.method not in {"GET", "HEAD"}:
            return web.Response(status=405, text="use GET\n", headers={"Allow": "GET, HEAD"})
        status, text = page()
        return web.Response(status=status, text=text, headers={"Content-Type": CONTENT_TYPE})

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
    """A server with at most CONNECTIONS: a new one replaces the oldest."""

    def __call__(self) -> RequestHandler:
        """Part of aiohttp: the protocol of a new connection."""
        for oldest in self.connections[: max(0, len(self.connections) - MAX_CONNECTIONS + 1)]:
            oldest.force_close()
        return super().__call__()
