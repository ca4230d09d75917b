"""The agent's HTTP endpoints: /metrics, /healthz and /readyz; only small GET requests, one per connection."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping
from html import escape

from msgspec import Struct

from nodeguard import __version__
from nodeguard.agent.agent import Agent
from nodeguard.agent.injector import ActiveInjections
from nodeguard.agent.reporting.delivery_queue import DeliveryQueue
from nodeguard.agent.reporting.endpoint_pool import EndpointPool

# Bytes of a request, and seconds for it.
_LIMIT = 8192
_PATIENCE = 5.0

# Open connections. One more closes the oldest: idle clients do not lock out the others.
_MAX_CONNECTIONS = 32

_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    503: "Service Unavailable",
}

_TEXT = "text/plain; charset=utf-8"


class HttpPage(Struct, frozen=True):
    """One response. body: text or bytes in the content type."""

    status: int
    body: str | bytes
    content_type: str = _TEXT


# Returns a page for the Accept header of a request.
PageSource = Callable[[str], HttpPage]


def agent_pages(
    agent: Agent,
    queue: DeliveryQueue,
    endpoints: EndpointPool | None,
    injections: ActiveInjections,
    node: str,
) -> dict[str, PageSource]:
    """Return the agent's pages by path. node: its name.

    /healthz shows that the event loop runs; /readyz that every source was read and a verdict exists.
    """
    from nodeguard.agent.metrics import AgentMetrics  # noqa: PLC0415 - prometheus_client costs 2 MiB

    metrics = AgentMetrics(agent, queue, endpoints, injections)

    def render_metrics(accept: str) -> HttpPage:
        if agent.verdict is None:
            return HttpPage(503, "no source has been read yet\n")
        content_type, body = metrics.render(accept)
        return HttpPage(200, body, content_type)

    def ready(_: str) -> HttpPage:
        if unread := ", ".join(agent.unread_sources()):
            return HttpPage(503, f"not read yet: {unread}\n")
        return HttpPage(503, "not evaluated yet\n") if agent.verdict is None else HttpPage(200, "ready\n")

    pages = {"/metrics": render_metrics, "/healthz": lambda _: HttpPage(200, "alive\n"), "/readyz": ready}
    landing = landing_page(node, pages)
    return {"/": lambda _: landing, **pages}


def landing_page(node: str, paths: Mapping[str, object]) -> HttpPage:
    """Return a page with the version of the agent and links to its other pages."""
    title = f"nodeguard agent {__version__} on {escape(node)}"
    links = "".join(f'<li><a href="{path[1:]}">{path}</a></li>' for path in paths)
    html = (
        f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>{title}</title></head>'
        f"<body><h1>{title}</h1><ul>{links}</ul></body></html>\n"
    )
    return HttpPage(200, html, "text/html; charset=utf-8")


async def serve_http(host: str, port: int, pages: Mapping[str, PageSource]) -> asyncio.Server:
    """Serve pages by path. Raises OSError if it cannot listen."""
    connections: dict[asyncio.StreamWriter, None] = {}

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(connections) >= _MAX_CONNECTIONS:
            oldest = next(iter(connections))
            del connections[oldest]
            oldest.transport.abort()
        connections[writer] = None
        try:
            async with asyncio.timeout(_PATIENCE):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(_response(_page(head, pages), body=not head.startswith(b"HEAD ")))
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # such a client gets no answer
        except asyncio.CancelledError:
            pass  # the event loop ends: asyncio of Python 3.11 would print a traceback
        finally:
            connections.pop(writer, None)
            writer.close()

    try:
        return await asyncio.start_server(handle, host, port, limit=_LIMIT, backlog=_MAX_CONNECTIONS)
    except (UnicodeError, ValueError):
        raise socket.gaierror(socket.EAI_NONAME, "this is not a host name") from None


def _page(head: bytes, pages: Mapping[str, PageSource]) -> HttpPage:
    first, *lines = head.decode("latin-1").split("\r\n")
    request = first.split(" ")
    if len(request) != 3 or not request[2].startswith("HTTP/1."):
        return HttpPage(400, "this is not an HTTP/1 request\n")
    method, path, _ = request
    if method not in {"GET", "HEAD"}:
        return HttpPage(405, "only GET is supported\n")
    source = pages.get(path.partition("?")[0])
    if source is None:
        return HttpPage(404, f"not found: the pages are {', '.join(pages)}\n")
    headers = (line.partition(":") for line in lines)
    return source(", ".join(value.strip() for name, _, value in headers if name.lower() == "accept"))


def _response(page: HttpPage, *, body: bool) -> bytes:
    content = page.body.encode() if isinstance(page.body, str) else page.body
    head = [
        f"HTTP/1.1 {page.status} {_REASONS[page.status]}",
        f"Content-Type: {page.content_type}",
        f"Content-Length: {len(content)}",
        "Connection: close",
        "",
        "",
    ]
    return "\r\n".join(head).encode() + (content if body else b"")
