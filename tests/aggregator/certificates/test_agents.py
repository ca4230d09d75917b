"""An agent trusts the server with the published CA bundle only, also across a renewal."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import uvloop

from nodeguard.aggregator.certificates.file_store import FileStore
from nodeguard.aggregator.certificates.issue import DAY
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
from tests.logs import LogLines


async def report_across_a_renewal(path: Path) -> None:
    now = time.time() - 4 * DAY
    agents = Authority(path)
    authority = SelfSignedAuthority(
        FileStore(str(path / "authority" / "authority.json"), 0o600),
        FileStore(str(path / "authority" / "ca.crt"), 0o644),
        ["127.0.0.1"],
        str(agents.certificate),
    )
    refresher = CertificateRefresher(authority, lambda: now)
    await refresher.wait_available()
    ingest = IngestServer(CertificateAuthenticator(), lambda _, __: Reply(VERSION), refresher.context)
    await ingest.listen("127.0.0.1", 0)
    transport = BlockingTransport(
        f"https://127.0.0.1:{ingest.ports[0]}/v1/messages",
        None,
        str(path / "authority" / "ca.crt"),
        files(agents, "node-a"),
    )
    first = refresher.context()
    for _ in range(2):
        for _ in range(2):
            response = await asyncio.to_thread(transport.post, heartbeat())
            assert response.status == 200
        now = time.time()
        assert await refresher.refresh()
        transport.close()
    assert refresher.context() is not first
    await ingest.close()


def test_an_agent_trusts_the_published_bundle_before_and_after_a_renewal(
    tmp_path: Path, log: LogLines
) -> None:
    uvloop.run(report_across_a_renewal(tmp_path))
    assert [line.partition(" store=")[0] for line in log.text()] == [
        "INFO created a certificate authority",
        "INFO published the CA certificate to agents",
    ]
