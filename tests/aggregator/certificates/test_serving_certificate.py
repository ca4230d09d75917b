"""What the server shows: the operator's files, read again, and what cannot be used."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from nodeguard.aggregator.certificates.file_certificate import FileCertificate
from nodeguard.aggregator.certificates.issue import issue_authority, issue_serving_certificate
from nodeguard.aggregator.certificates.serving_certificate import (
    CertificateRefresher,
    CertificateUnavailableError,
    ServingCertificate,
    ServingCertificateError,
    tls_context,
)


class Scene:
    def __init__(self, path: Path) -> None:
        self.by = issue_authority(time.time())
        self.certificate, self.key = path / "tls.crt", path / "tls.key"
        self.now = time.time()
        self.told: list[str] = []
        self.trust = CertificateRefresher(
            FileCertificate(str(self.certificate), str(self.key)), self.told.append, lambda: self.now
        )

    def write(self) -> ServingCertificate:
        shown = issue_serving_certificate(self.by, ["a.example"], self.now)
        self.certificate.write_text(shown.certificate)
        self.key.write_text(shown.key)
        return shown


async def test_files_are_read_again_and_wrong_ones_leave_what_was(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    with pytest.raises(CertificateUnavailableError):
        scene.trust.context()
    assert not await scene.trust.refresh()
    assert scene.told == [f"{scene.certificate}: No such file or directory: create it, or correct the path; agents cannot connect"]  # fmt: skip
    shown = scene.write()
    assert await scene.trust.refresh()
    first = scene.trust.context()
    assert await scene.trust.refresh()
    assert scene.trust.context() is first
    assert abs(scene.trust.expires_at - shown.expires_at) < 1.0

    old_key = scene.key.read_text()
    scene.write()
    scene.key.write_text(old_key)
    for _ in range(3):
        assert not await scene.trust.refresh()
    assert scene.trust.context() is first
    assert scene.told[1:] == [
        (
            "certificate and key cannot be used, the key does not match the certificate: write both in PEM; "
            "the previous certificate stays in use"
        )
    ]
    scene.write()
    assert await scene.trust.refresh()
    assert scene.trust.context() is not first
    assert not [line for line in scene.told if old_key.splitlines()[1] in line]


async def test_a_certificate_that_has_expired_is_told(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.write()
    scene.now += 365 * 86400.0
    assert not await scene.trust.refresh()
    assert "the certificate has expired" in scene.told[0]


@pytest.mark.parametrize("wrong", ["", "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n"])
def test_what_is_no_certificate_is_refused(wrong: str) -> None:
    shown = issue_serving_certificate(issue_authority(time.time()), ["a.example"], time.time())
    for one in (ServingCertificate(wrong, shown.key), ServingCertificate(shown.certificate, wrong), ServingCertificate(shown.certificate, shown.key, wrong or "x")):  # fmt: skip
        with pytest.raises(ServingCertificateError, match="PEM"):
            tls_context(one)
