"""From nothing to an agent that trusts the server: what the authority publishes is all that it is given."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import uvloop

from nodeguard.aggregator.certificates.directory_store import DirectoryStore
from nodeguard.aggregator.certificates.rotation import DAY
from nodeguard.aggregator.certificates.self_signed_authority import SelfSignedAuthority
from nodeguard.aggregator.certificates.serving_certificate import CertificateRefresher
from nodeguard.aggregator.identity.certificate import CertificateAuthenticator
from nodeguard.aggregator.ingest.server import IngestServer
from nodeguard.wire.instruction import Reply
from nodeguard.wire.report import VERSION
from tests.agent.reporting.blocking import BlockingTransport
from tests.aggregator.identity.test_certificate import files
from tests.aggregator.ingest.scene import heartbeat
from tests.controlplane.certificates import Authority


async def _whole(path: Path) -> list[str]:
    told: list[str] = []
    now = time.time() - 4 * DAY
    agents = Authority(path)
    keeper = SelfSignedAuthority(
        DirectoryStore(str(path / "authority")), ["127.0.0.1"], told.append, str(agents.certificate)
    )
    trust = CertificateRefresher(keeper, told.append, lambda: now)
    await trust.wait_available()
    ingest = IngestServer(
        CertificateAuthenticator(), lambda _, __: Reply(VERSION), trust.context, told.append
    )
    await ingest.listen("127.0.0.1", 0)
    way = BlockingTransport(
        f"https://127.0.0.1:{ingest.ports[0]}/v1/messages",
        None,
        str(path / "authority" / "ca.crt"),
        files(agents, "node-a"),
    )
    first = trust.context()
    for _ in range(2):
        for _ in range(2):
            answer = await asyncio.to_thread(way.post, heartbeat())
            assert answer.status == 200
        now = time.time()
        assert await trust.refresh()
        way.close()
    assert trust.context() is not first
    await ingest.close()
    return told


def test_an_agent_trusts_what_is_published_and_goes_on_as_it_is_renewed(tmp_path: Path) -> None:
    assert uvloop.run(_whole(tmp_path)) == []
