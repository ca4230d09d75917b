"""The monitoring server: a landing page, /metrics, /healthz and /readyz over plain HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from nodeguard import __version__

# Connections at a time. Any client may connect, and must not use up the open files that agents need.
MAX_CONNECTIONS = 64

_TEXT = "text/plain; charset=utf-8"

_LANDING_PAGE = """<!DOCTYPE html>
<html lang="en">
<head><title>nodeguard aggregator</title></head>
<body>
<h1>nodeguard aggregator</h1>
<p>Version {version}</p>
<ul>
{links}
</ul>
</body>
</html>
"""


class Page(NamedTuple):
    """One response. body: text or bytes in the content type."""

    status: int
    body: str | bytes
    content_type: str = _TEXT


# Returns a page for the Accept header of a request.
PageSource = Callable[[str], Page]


async def serve(host: str, port: int, pages: Mapping[str, PageSource]) -> web.ServerRunner:
    """Serve pages by path, and a landing page, for GET and HEAD; stop it with `cleanup`. Raises OSError if it
    cannot listen.
    """
    sources = {"/": lambda _: _landing_page(pages), **pages}

    async def answer(request: web.BaseRequest) -> web.Response:
        source = sources.get(request.path)
        if source is None:
            return web.Response(status=404, text=f"not found: the pages are {', '.join(pages)}\n")
        if request.method not in {"GET", "HEAD"}:
            return web.Response(status=405, text="use GET\n", headers={"Allow": "GET, HEAD"})
        page = source(request.headers.get("Accept", ""))
        body = page.body.encode() if isinstance(page.body, str) else page.body
        return web.Response(status=page.status, body=body, headers={"Content-Type": page.content_type})

    server = LimitedServer(answer, access_log=None, keepalive_timeout=30.0)
    runner = web.ServerRunner(server, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, host or None, port).start()
    except BaseException:
        await runner.cleanup()
        raise
    return runner


def _landing_page(paths: Iterable[str]) -> Page:
    """Return the page at `/`, with links to the others."""
    links = "\n".join(f'<li><a href="{path}">{path}</a></li>' for path in paths)
    return Page(200, _LANDING_PAGE.format(version=__version__, links=links), "text/html; charset=utf-8")


class LimitedServer(web.Server):
    """A server with at most MAX_CONNECTIONS: a new connection replaces the oldest."""

    def __call__(self) -> RequestHandler:
        """Return the protocol of a new connection. Part of aiohttp."""
        for oldest in self.connections[: max(0, len(self.connections) - MAX_CONNECTIONS + 1)]:
            oldest.force_close()
        return super().__call__()
