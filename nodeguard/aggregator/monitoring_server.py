"""The monitoring server: a landing page, /metrics, /healthz and /readyz over plain HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple

from aiohttp import web

from nodeguard import __version__
from nodeguard.aggregator.http_listener import LimitedServer, listening

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


@asynccontextmanager
async def serve(address: tuple[str, int], pages: Mapping[str, PageSource]) -> AsyncIterator[LimitedServer]:
    """Serve pages by path, and a landing page, for GET and HEAD, until the context ends. Raises OSError if it
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

    server = LimitedServer(answer)
    async with listening(web.ServerRunner(server, shutdown_timeout=1.0), address):
        yield server


def _landing_page(paths: Iterable[str]) -> Page:
    """Return the page at `/`, with links to the others."""
    links = "\n".join(f'<li><a href="{path}">{path}</a></li>' for path in paths)
    return Page(200, _LANDING_PAGE.format(version=__version__, links=links), "text/html; charset=utf-8")
