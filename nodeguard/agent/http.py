"""The agent's HTTP endpoints: /metrics, /healthz and /readyz; only small GET requests, one per connection."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping

from nodeguard.agent.agent import Agent
from nodeguard.agent.metrics import render_metrics
from nodeguard.agent.reporting.delivery_queue import DeliveryQueue
from nodeguard.agent.reporting.endpoint_pool import EndpointPool
from nodeguard.wire.exposition import CONTENT_TYPE

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

# Status, content type and text.
HttpPage = tuple[int, str, str]


def agent_pages(
    agent: Agent, queue: DeliveryQueue, endpoints: EndpointPool | None
) -> dict[str, Callable[[], HttpPage]]:
    """Return the agent's pages by path.

    /healthz shows that the event loop runs; /readyz that every source was read and a verdict exists.
    """

    def metrics() -> HttpPage:
        if agent.verdict is None:
            return 503, _TEXT, "no source has been read yet\n"
        now = agent.now()
        read_at = {name: now.wall - age for name, age in agent.ages().items()}
        acked_at: dict[str, float] | None = None
        if endpoints:
            booted = now.wall - now.mono
            acked_at = {name: max(0.0, booted + mono) for name, mono in endpoints.acked_at().items()}
        spooled = len(queue.state.spool)
        text = render_metrics(agent.verdict, read_at, agent.evaluations, acked_at, spooled)
        return 200, CONTENT_TYPE, text

    def ready() -> HttpPage:
        if unread := ", ".join(agent.unread_sources()):
            return 503, _TEXT, f"not read yet: {unread}\n"
        return (503, _TEXT, "not evaluated yet\n") if agent.verdict is None else (200, _TEXT, "ready\n")

    return {"/metrics": metrics, "/healthz": lambda: (200, _TEXT, "alive\n"), "/readyz": ready}


async def serve_http(host: str, port: int, pages: Mapping[str, Callable[[], HttpPage]]) -> asyncio.Server:
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
        finally:
            connections.pop(writer, None)
            writer.close()

    try:
        return await asyncio.start_server(handle, host, port, limit=_LIMIT, backlog=_MAX_CONNECTIONS)
    except (UnicodeError, ValueError):
        raise socket.gaierror(socket.EAI_NONAME, "this is not a host name") from None


def _page(head: bytes, pages: Mapping[str, Callable[[], HttpPage]]) -> HttpPage:
    request = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
    if len(request) != 3 or not request[2].startswith("HTTP/1."):
        return 400, "text/plain", "this is not an HTTP/1 request\n"
    method, path, _ = request
    if method not in {"GET", "HEAD"}:
        return 405, "text/plain", "only GET is supported\n"
    page = pages.get(path.partition("?")[0])
    if page is None:
        return 404, "text/plain", f"there is {', '.join(pages)}\n"
    return page()


def _response(page: HttpPage, *, body: bool) -> bytes:
    status, content_type, text = page
    content = text.encode()
    head = [
        f"HTTP/1.1 {status} {_REASONS[status]}",
        f"Content-Type: {content_type}",
        f"Content-Length: {len(content)}",
        "Connection: close",
        "",
        "",
    ]
    return "\r\n".join(head).encode() + (content if body else b"")
