from __future__ import annotations

import asyncio

from nodeguard.aggregator.monitoring_server import MAX_CONNECTIONS, Page, serve
from tests.ports import free_ports


async def asked(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    return answer


def request(words: str) -> bytes:
    return f"{words} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode()


async def test_pages_are_served_to_those_who_get_them() -> None:
    [port] = free_ports(1)
    runner = await serve(
        "127.0.0.1",
        port,
        {"/metrics": lambda accept: Page(200, b"up 1\n", "text/x"), "/readyz": lambda _: Page(503, "no\n")},
    )
    answers = [
        await asked(port, request(words))
        for words in ("GET /metrics", "GET /readyz", "GET /x", "PUT /metrics")
    ]
    await runner.cleanup()
    assert [one.split()[1] for one in answers] == [b"200", b"503", b"404", b"405"]
    assert answers[0].endswith(b"\r\n\r\nup 1\n")
    assert b"Content-Type: text/x" in answers[0]


async def test_connections_that_ask_nothing_keep_nobody_from_asking() -> None:
    [port] = free_ports(1)
    runner = await serve("127.0.0.1", port, {"/healthz": lambda _: Page(200, "alive\n")})
    silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3 * MAX_CONNECTIONS)]
    assert b"alive" in await asked(port, request("GET /healthz"))
    assert runner.server is not None
    assert len(runner.server.connections) <= MAX_CONNECTIONS
    assert await silent[0][0].read() == b""
    for _, writer in silent:
        writer.close()
    await runner.cleanup()
