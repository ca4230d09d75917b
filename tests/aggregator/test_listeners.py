from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from nodeguard.aggregator.certificates import serving_certificate
from nodeguard.aggregator.certificates.serving_certificate import CertificateRefresher, FileCertificate
from nodeguard.aggregator.identity.certificate import CertificateAuthenticator
from nodeguard.aggregator.ingest.server import IngestServer
from nodeguard.aggregator.listeners import readiness_page, serve_agents
from tests.aggregator.test_service import Scene
from tests.controlplane.certificates import Authority
from tests.waiting import until_async


async def test_an_aggregator_that_waits_for_its_serving_certificate_is_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving_certificate, "_RETRY", 0.01)
    scene, files = Scene(), (tmp_path / "localhost.crt", tmp_path / "localhost.key")
    certificate = CertificateRefresher(FileCertificate(*map(str, files)), time.time)
    ingest = IngestServer(CertificateAuthenticator(), scene.handler, certificate.context)

    def readiness() -> str:
        body = readiness_page(scene.service.replica_state(scene.now), scene.mono).body
        assert isinstance(body, str)
        return body

    serving = asyncio.create_task(serve_agents(("127.0.0.1", 0), ingest, certificate, scene.service))
    problem = "not ready: cannot listen for agents without a serving certificate"
    await until_async(lambda: readiness().startswith(problem))
    await until_async(lambda: f"{problem}: {files[0]}: No such file or directory: create it" in readiness())
    Authority(tmp_path).issue("localhost", "localhost")
    await until_async(lambda: ingest.ports)
    assert readiness().startswith("ready")
    serving.cancel()
    await ingest.close()
