"""The serving certificate from files: renewed without a restart, and refused if it is unusable."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from nodeguard.aggregator.certificates.issue import issue_authority, issue_serving_certificate
from nodeguard.aggregator.certificates.serving_certificate import (
    CertificateRefresher,
    CertificateUnavailableError,
    FileCertificate,
    ServingCertificate,
    ServingCertificateError,
    tls_context,
)
from tests.logs import LogLines


class Scene:
    def __init__(self, path: Path) -> None:
        self.by = issue_authority(time.time())
        self.certificate, self.key = path / "tls.crt", path / "tls.key"
        self.now = time.time()
        provider = FileCertificate(str(self.certificate), str(self.key))
        self.refresher = CertificateRefresher(provider, lambda: self.now)

    def write(self) -> ServingCertificate:
        serving = issue_serving_certificate(self.by, ["a.example"], self.now)
        self.certificate.write_text(serving.certificate)
        self.key.write_text(serving.key)
        return serving


async def test_files_are_read_again_and_invalid_ones_are_not_used(tmp_path: Path, log: LogLines) -> None:
    scene = Scene(tmp_path)
    with pytest.raises(CertificateUnavailableError):
        scene.refresher.context()
    assert not await scene.refresher.refresh()
    assert log.text() == [
        (
            "ERROR no serving certificate, agents cannot connect "
            f"error={scene.certificate}: No such file or directory: create it, or correct the path"
        )
    ]
    serving = scene.write()
    assert await scene.refresher.refresh()
    first = scene.refresher.context()
    assert await scene.refresher.refresh()
    assert scene.refresher.context() is first
    assert scene.refresher.certificate is not None
    assert abs(scene.refresher.certificate.expires_at - serving.expires_at) < 1.0

    old_key = scene.key.read_text()
    scene.write()
    scene.key.write_text(old_key)
    for _ in range(3):
        assert not await scene.refresher.refresh()
    assert scene.refresher.context() is first
    assert log.text()[1:] == [
        "INFO the serving certificate is up to date again",
        (
            "WARNING cannot renew the serving certificate, the previous one stays in use "
            "error=certificate and key cannot be used, the key does not match the certificate: write both in PEM"
        ),
    ]
    scene.write()
    assert await scene.refresher.refresh()
    assert scene.refresher.context() is not first
    assert not [line for line in log.text() if old_key.splitlines()[1] in line]


async def test_an_expired_certificate_is_logged(tmp_path: Path, log: LogLines) -> None:
    scene = Scene(tmp_path)
    scene.write()
    scene.now += 365 * 86400.0
    assert not await scene.refresher.refresh()
    assert "the certificate has expired" in log.text()[0]


@pytest.mark.parametrize("invalid", ["", "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n"])
def test_invalid_pem_is_refused(invalid: str) -> None:
    valid = issue_serving_certificate(issue_authority(time.time()), ["a.example"], time.time())
    for serving in (
        ServingCertificate(invalid, valid.key),
        ServingCertificate(valid.certificate, invalid),
        ServingCertificate(valid.certificate, valid.key, invalid or "x"),
    ):
        with pytest.raises(ServingCertificateError, match="PEM"):
            tls_context(serving)
