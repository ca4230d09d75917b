"""The agent's few pages over HTTP: GET alone, small requests alone, one on each connection."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping

from nodeguard.agent.agent import Agent
from nodeguard.agent.metrics import render_metrics
from nodeguard.agent.reporting.delivery_state import DeliveryQueue
from nodeguard.agent.reporting.senders import Senders
from nodeguard.wire.exposition import CONTENT_TYPE

# Bytes of a request that is read at all, and seconds that a client may take for it.
_LIMIT = 8192
_PATIENCE = 5.0

# Connections that are open at a time. With one more, who has waited longest gives way: many that say nothing
# do not shut out who asks.
_MOST = 32

_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    503: "Service Unavailable",
}


# Status, type of content and text.
HttpPage = tuple[int, str, str]


async def serve_http(host: str, port: int, pages: Mapping[str, Callable[[], HttpPage]]) -> asyncio.Server:
    """Serve pages by path. Raises OSError where it cannot listen."""
    waiting: dict[asyncio.StreamWriter, None] = {}

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(waiting) >= _MOST:
            oldest = next(iter(waiting))
            del waiting[oldest]
            oldest.transport.abort()
        waiting[writer] = None
        try:
            async with asyncio.timeout(_PATIENCE):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(_response(_answer(head, pages), body=not head.startswith(b"HEAD ")))
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # whoever asks so gets no answer
        finally:
            waiting.pop(writer, None)
            writer.close()

    try:
        return await asyncio.start_server(handle, host, port, limit=_LIMIT, backlog=_MOST)
    except (UnicodeError, ValueError):
        raise socket.gaierror(socket.EAI_NONAME, "this is no host's name") from None


def _answer(head: bytes, pages: Mapping[str, Callable[[], HttpPage]]) -> HttpPage:
    words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        return 400, "text/plain", "this is no HTTP/1 request\n"
    if words[0] not in {"GET", "HEAD"}:
        return 405, "text/plain", "only GET is answered\n"
    page = pages.get(words[1].partition("?")[0])
    if page is None:
        return 404, "text/plain", f"there is {', '.join(pages)}\n"
    return page()


def _response(page: HttpPage, *, body: bool) -> bytes:
    status, kind, text = page
    content = text.encode()
    head = [
        f"HTTP/1.1 {status} {_REASONS[status]}",
        f"Content-Type: {kind}",
        f"Content-Length: {len(content)}",
        "Connection: close",
        "",
        "",
    ]
    return "\r\n".join(head).encode() + (content if body else b"")


_TEXT = "text/plain; charset=utf-8"


def agent_pages(
    agent: Agent, mailbox: DeliveryQueue, senders: Senders | None
) -> dict[str, Callable[[], HttpPage]]:
    """The pages of an agent: its metrics, whether its loop turns, and whether it has read everything once and
    come to a verdict.
    """

    def unheard() -> dict[str, float] | None:
        now = agent.now().mono
        return {name: now - at for name, at in senders.heard().items()} if senders else None

    def metrics() -> HttpPage:
        if agent.verdict is None:
            return 503, _TEXT, "no source has been read yet\n"
        return (
            200,
            CONTENT_TYPE,
            render_metrics(
                agent.verdict, agent.ages(), agent.evaluations, unheard(), len(mailbox.state.spool)
            ),
        )

    def ready() -> HttpPage:
        if unheard := ", ".join(agent.unread_sources()):
            return 503, _TEXT, f"not read yet: {unheard}\n"
        return (503, _TEXT, "not judged yet\n") if agent.verdict is None else (200, _TEXT, "ready\n")

    return {"/metrics": metrics, "/healthz": lambda: (200, _TEXT, "alive\n"), "/readyz": ready}
