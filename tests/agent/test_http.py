"""The agent's HTTP server, over real connections."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from nodeguard.agent import http
from nodeguard.agent.http import HttpPage, PageSource, landing_page, serve_http
from tests.agent.scene import NEVER
from tests.waiting import PATIENCE


async def fetch(request: bytes) -> bytes:
    pages: dict[str, PageSource] = {"/metrics": lambda accept: HttpPage(200, f"{accept or 'up 1'}\n")}
    async with await serve_http("127.0.0.1", 0, pages) as server:
        host, port = server.sockets[0].getsockname()
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(request)
        writer.write_eof()
        response = await reader.read()
        writer.close()
        return response


async def test_a_get_returns_the_page() -> None:
    response = await fetch(b"GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\n")
    assert response.startswith(b"HTTP/1.1 200 OK\r\n")
    assert response.endswith(b"Content-Length: 5\r\nConnection: close\r\n\r\nup 1\n")


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /other HTTP/1.1\r\n\r\n", b"404"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"405"),
        (b"nonsense\r\n\r\n", b"400"),
        (b"\xff\xfe \x00 HTTP/1.1\r\n\r\n", b"405"),
    ],
)
async def test_invalid_requests_get_an_error(request_: bytes, status: bytes) -> None:
    assert (await fetch(request_)).split(b" ")[1] == status


async def test_a_page_gets_the_accept_header() -> None:
    response = await fetch(b"GET /metrics HTTP/1.1\r\nHost: a\r\naccept: text/html\r\n\r\n")
    assert response.endswith(b"\r\n\r\ntext/html\n")


def test_the_landing_page_links_to_the_other_pages() -> None:
    page = landing_page("gpu-<1>", {"/metrics": None, "/healthz": None})
    assert page.content_type.startswith("text/html")
    assert '<a href="metrics">/metrics</a>' in str(page.body)
    assert "gpu-&lt;1&gt;" in str(page.body)


@pytest.mark.parametrize("request_", [b"", b"GET /metrics", b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n"])
async def test_incomplete_and_too_long_requests_get_no_response(request_: bytes) -> None:
    assert await fetch(request_) == b""


async def test_a_head_request_gets_no_body() -> None:
    response = await fetch(b"HEAD /metrics HTTP/1.1\r\n\r\n")
    assert response.endswith(b"Content-Length: 5\r\nConnection: close\r\n\r\n")


async def test_a_new_connection_replaces_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_PATIENCE", NEVER)
    pages: dict[str, PageSource] = {"/healthz": lambda _: HttpPage(200, "alive\n")}
    async with await serve_http("127.0.0.1", 0, pages) as server:
        host, port = server.sockets[0].getsockname()
        idle = [await asyncio.open_connection(host, port) for _ in range(60)]
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(b"GET /healthz HTTP/1.1\r\n\r\n")
        async with asyncio.timeout(PATIENCE):
            assert (await reader.read()).endswith(b"alive\n")
            with suppress(ConnectionResetError):
                assert await idle[0][0].read() == b""
        assert not idle[-1][0].at_eof()
        for _, connection in [*idle, (reader, writer)]:
            connection.close()


@pytest.mark.parametrize("host", ["a" * 70, "..", "nosuch.invalid", "a\0b"])
async def test_an_invalid_host_raises_os_error(host: str) -> None:
    with pytest.raises(OSError, match=r"."):
        await serve_http(host, 80, {})
