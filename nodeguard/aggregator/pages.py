"""The aggregator's pages for machines: /metrics, /healthz and /readyz, over plain HTTP."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

from nodeguard.wire.exposition import CONTENT_TYPE

# Status and text.
Page = Callable[[], tuple[int, str]]

_LIMIT = 16 * 1024


async def serve(host: str, port: int, pages: dict[str, Page]) -> web.AppRunner:
    """Serve pages by path, to GET alone; ended by `cleanup`. Raises OSError where it cannot listen."""
    application = web.Application(client_max_size=_LIMIT)
    for path, page in pages.items():
        application.router.add_get(path, _answering(page))
    runner = web.AppRunner(application, access_log=None, keepalive_timeout=30.0, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, host or None, port).start()
    except BaseException:
        await runner.cleanup()
        raise
    return runner


def _answering(page: Page) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(_: web.Request) -> web.Response:
        status, text = page()
        return web.Response(status=status, text=text, headers={"Content-Type": CONTENT_TYPE})

    return answer
