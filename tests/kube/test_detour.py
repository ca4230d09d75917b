"""The proxy that tests cut leaves no connection open."""

from __future__ import annotations

import asyncio
import socket

import pytest

from tests.kube.detour import Detour


@pytest.mark.parametrize("turns", range(8))
@pytest.mark.parametrize("ends", [True, False], ids=["end", "cut"])
def test_a_connection_that_was_just_accepted_is_closed(turns: int, ends: bool) -> None:
    """turns: of the loop, between the connection and the end of the proxy, or its cut."""

    async def response_of_proxy(port: int) -> bytes:
        async with Detour(port) as detour:
            address = ("127.0.0.1", int(detour.url.rpartition(":")[2]))
            with socket.create_connection(address) as client:
                client.setblocking(False)
                for _ in range(turns):
                    await asyncio.sleep(0)
                if ends:
                    await detour.__aexit__(None, None, None)
                else:
                    detour.cut()
                async with asyncio.timeout(5.0):
                    try:
                        return await asyncio.get_running_loop().sock_recv(client, 1)
                    except ConnectionResetError:
                        return b""

    with socket.create_server(("127.0.0.1", 0)) as server:
        assert asyncio.run(response_of_proxy(server.getsockname()[1])) == b""
