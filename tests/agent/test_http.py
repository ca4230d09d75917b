"""The agent's pages, over real connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import pytest

from nodeguard.agent import http
from nodeguard.agent.http import HttpPage, serve_http
from tests.agent.scene import NEVER
from tests.waiting import PATIENCE


async def asked(request: bytes) -> bytes:
    pages: dict[str, Callable[[], HttpPage]] = {"/metrics": lambda: (200, "text/plain", "up 1\n")}
    async with await serve_http("127.0.0.1", 0, pages) as server:
        host, port = server.sockets[0].getsockname()
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(request)
        writer.write_eof()
        answer = await reader.read()
        writer.close()
        return answer


async def test_a_page_is_served_whole() -> None:
    answer = await asked(b"GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"Content-Length: 5\r\nConnection: close\r\n\r\nup 1\n")


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /other HTTP/1.1\r\n\r\n", b"404"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"405"),
        (b"nonsense\r\n\r\n", b"400"),
        (b"\xff\xfe \x00 HTTP/1.1\r\n\r\n", b"405"),
    ],
)
async def test_what_is_not_asked_well_is_refused(request_: bytes, status: bytes) -> None:
    assert (await asked(request_)).split(b" ")[1] == status


@pytest.mark.parametrize("request_", [b"", b"GET /metrics", b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n"])
async def test_what_is_too_long_or_cut_short_gets_no_answer(request_: bytes) -> None:
    assert await asked(request_) == b""


async def test_a_head_is_answered_without_a_body() -> None:
    answer = await asked(b"HEAD /metrics HTTP/1.1\r\n\r\n")
    assert answer.endswith(b"Content-Length: 5\r\nConnection: close\r\n\r\n")


async def test_who_waits_longest_gives_way_to_a_newcomer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_PATIENCE", NEVER)
    pages: dict[str, Callable[[], HttpPage]] = {"/healthz": lambda: (200, "text/plain", "alive\n")}
    async with await serve_http("127.0.0.1", 0, pages) as server:
        host, port = server.sockets[0].getsockname()
        silent = [await asyncio.open_connection(host, port) for _ in range(60)]
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(b"GET /healthz HTTP/1.1\r\n\r\n")
        async with asyncio.timeout(PATIENCE):
            assert (await reader.read()).endswith(b"alive\n")
            with suppress(ConnectionResetError):
                assert await silent[0][0].read() == b""
        assert not silent[-1][0].at_eof()
        for _, one in [*silent, (reader, writer)]:
            one.close()


@pytest.mark.parametrize("host", ["a" * 70, "..", "nosuch.invalid", "a\0b"])
async def test_what_is_no_host_is_told_as_an_error_of_the_system(host: str) -> None:
    with pytest.raises(OSError, match=r"."):
        await serve_http(host, 80, {})
