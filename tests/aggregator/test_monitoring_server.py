from __future__ import annotations

import asyncio

from nodeguard import __version__
from nodeguard.aggregator.http_listener import MAX_CONNECTIONS
from nodeguard.aggregator.monitoring_server import Page, serve
from tests.ports import free_ports


async def send(port: int, request: str) -> bytes:
    """Send a request line, and return the response."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"{request} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
    response = await reader.read()
    writer.close()
    return response


async def test_pages_are_served_for_get_requests() -> None:
    [port] = free_ports(1)
    pages = {"/metrics": lambda _: Page(200, b"up 1\n", "text/x"), "/readyz": lambda _: Page(503, "no\n")}
    requests = ("GET /metrics", "GET /readyz", "GET /x", "PUT /metrics", "GET /")
    async with serve(("127.0.0.1", port), pages):
        responses = [await send(port, request) for request in requests]
    assert [response.split()[1] for response in responses] == [b"200", b"503", b"404", b"405", b"200"]
    assert responses[0].endswith(b"\r\n\r\nup 1\n")
    assert b"Content-Type: text/x" in responses[0]


async def test_the_landing_page_has_the_version_and_links_to_the_pages() -> None:
    [port] = free_ports(1)
    pages = {"/metrics": lambda _: Page(200, ""), "/healthz": lambda _: Page(200, "")}
    async with serve(("127.0.0.1", port), pages):
        response = await send(port, "GET /")
    assert b"Content-Type: text/html" in response
    assert f"Version {__version__}".encode() in response
    assert [f'<a href="{path}">'.encode() in response for path in pages] == [True, True]


async def test_idle_connections_do_not_block_requests() -> None:
    [port] = free_ports(1)
    async with serve(("127.0.0.1", port), {"/healthz": lambda _: Page(200, "alive\n")}) as server:
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3 * MAX_CONNECTIONS)]
        assert b"alive" in await send(port, "GET /healthz")
        assert len(server.connections) <= MAX_CONNECTIONS
        assert await idle[0][0].read() == b""
        for _, writer in idle:
            writer.close()
