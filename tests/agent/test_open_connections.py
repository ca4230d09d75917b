"""Connections that are open when the agent ends."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from nodeguard.agent.control import serve_control
from nodeguard.agent.http import serve_http
from tests.agent.test_control import STATUS, echo, refuse
from tests.waiting import until_async


async def serve_socket(directory: Path) -> asyncio.Server:
    return await serve_control(str(directory / "agent.sock"), echo, refuse, lambda: STATUS)


async def serve_pages(_: Path) -> asyncio.Server:
    return await serve_http("127.0.0.1", 0, {})


@pytest.mark.parametrize("serve", [serve_socket, serve_pages])
async def test_an_idle_client_leaves_no_traceback_at_the_end_of_the_agent(
    serve: Callable[[Path], Awaitable[asyncio.Server]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with await serve(tmp_path) as server:
        before = asyncio.all_tasks()
        with socket.socket(server.sockets[0].family) as client:
            client.connect(server.sockets[0].getsockname())
            await until_async(lambda: asyncio.all_tasks() - before)
            for handler in asyncio.all_tasks() - before:
                handler.cancel()  # as the event loop does at its end
            assert await asyncio.to_thread(client.recv, 1) == b""
    assert caplog.text == ""
