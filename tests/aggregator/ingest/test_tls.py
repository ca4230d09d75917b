from __future__ import annotations

import asyncio
from pathlib import Path

import uvloop

from nodeguard.aggregator.ingest.read_turns import ReadTurns
from nodeguard.aggregator.ingest.tls import TlsProtocol
from nodeguard.wire.encoding import MESSAGE_LIMIT, decode_reply
from tests.aggregator.ingest.scene import agent, heartbeat, serving, serving_context, tokens
from tests.aggregator.issuer import Issuer
from tests.controlplane.certificates import Authority


def test_all_connections_read_into_one_small_buffer(authority: Authority) -> None:
    async def buffers() -> list[memoryview]:
        loop, context = asyncio.get_running_loop(), serving_context(authority)
        turns = ReadTurns(loop)
        protocols = [
            TlsProtocol(loop, asyncio.Protocol(), context, loop.create_future(), 1.0, 1.0, turns)
            for _ in range(2)
        ]
        try:
            assert not any(protocol._ssl_buffer for protocol in protocols)
            return [protocol.get_buffer(256 * 1024) for protocol in protocols]
        finally:
            for protocol in protocols:
                protocol.connection_lost(None)

    first, second = uvloop.run(buffers())
    assert first is second
    assert len(first) <= 16 * 1024


def test_the_largest_message_is_read_in_parts(issuer: Issuer, authority: Authority, tmp_path: Path) -> None:
    with serving(lambda: tokens(issuer), serving_context(authority)) as served:
        transport = agent(served, tmp_path / "token", issuer.token(), authority.certificate)
        body = heartbeat() + b" " * (MESSAGE_LIMIT - len(heartbeat()))
        for sent in (body, heartbeat()):
            response = transport.post(sent)
            assert response.status == 200
            assert decode_reply(response.body)[0].acked_sequence == 1
        transport.close()
        assert served.ingest.endpoint.received_bytes == MESSAGE_LIMIT + len(heartbeat())
