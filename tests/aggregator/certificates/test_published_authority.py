"""A certificate of another issuer: its CA is published to agents, and replicas do not undo each other."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography import x509

from nodeguard.aggregator.certificates.file_store import FileStore
from nodeguard.aggregator.certificates.issue import (
    DAY,
    CertificateAuthority,
    issue_authority,
    issue_serving_certificate,
)
from nodeguard.aggregator.certificates.published_authority import PublishedCertificate, merged_bundle
from nodeguard.aggregator.certificates.serving_certificate import CertificateUnavailableError, FileCertificate
from nodeguard.model.stored_text import TextStore
from tests.aggregator.certificates.memory_store import MemoryStore
from tests.logs import LogLines

NOW = 1_800_000_000.0


class Mount:
    """The mounted Secret of one replica, as cert-manager writes it."""

    def __init__(self, directory: Path, store: TextStore) -> None:
        directory.mkdir()
        names = ("tls.crt", "tls.key", "ca.crt")
        self.certificate, self.key, self.authority = (directory / name for name in names)
        files = FileCertificate(str(self.certificate), str(self.key))
        self.provider = PublishedCertificate(files, str(self.authority), store)

    def write(self, by: CertificateAuthority) -> None:
        serving = issue_serving_certificate(by, ["nodeguard.example"], NOW)
        self.certificate.write_text(serving.certificate)
        self.key.write_text(serving.key)
        self.authority.write_text(by.certificate)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


async def test_the_authority_is_published_before_its_certificate_is_used(
    tmp_path: Path, store: MemoryStore, log: LogLines
) -> None:
    mount, by = Mount(tmp_path / "secret", store), issue_authority(NOW)
    mount.write(by)
    certificate = await mount.provider.current(NOW)
    assert certificate.certificate == mount.certificate.read_text()
    assert store.text == by.certificate
    await mount.provider.current(NOW)
    assert store.writes == 1
    assert len(log.text()) == 1


async def test_a_replica_with_the_previous_secret_does_not_withdraw_the_new_authority(
    tmp_path: Path, store: MemoryStore
) -> None:
    first, second = Mount(tmp_path / "first", store), Mount(tmp_path / "second", store)
    old, new = issue_authority(NOW, 30 * DAY), issue_authority(NOW)
    first.write(old)
    second.write(old)
    await first.provider.current(NOW)
    first.write(new)
    for mount in (first, second, first, second):
        await mount.provider.current(NOW + 1.0)
        assert store.text == new.certificate + old.certificate
    # An authority leaves the bundle when it has expired.
    assert merged_bundle(loaded(new), loaded(new, old), NOW + 31 * DAY) == new.certificate


def loaded(*authorities: CertificateAuthority) -> list[x509.Certificate]:
    text = "".join(authority.certificate for authority in authorities)
    return x509.load_pem_x509_certificates(text.encode())


def test_a_bundle_has_a_limit_and_begins_with_the_own_authority() -> None:
    authorities = [issue_authority(NOW) for _ in range(12)]
    bundle = merged_bundle(loaded(authorities[-1]), loaded(*authorities[:-1]), NOW)
    assert bundle.startswith(authorities[-1].certificate)
    assert bundle.count("BEGIN CERTIFICATE") == 8


@pytest.mark.parametrize("text", ["", "no certificate"])
async def test_an_issuer_without_a_ca_is_an_error(tmp_path: Path, store: MemoryStore, text: str) -> None:
    mount = Mount(tmp_path / "secret", store)
    mount.write(issue_authority(NOW))
    mount.authority.write_text(text)
    with pytest.raises(CertificateUnavailableError, match=r"ca\.crt has no certificate: use an issuer that"):
        await mount.provider.current(NOW)


async def test_a_store_that_fails_does_not_stop_the_server(tmp_path: Path, log: LogLines) -> None:
    mount = Mount(tmp_path / "secret", FileStore(str(tmp_path / "missing" / "store" / "ca.crt"), 0o644))
    mount.write(issue_authority(NOW))
    assert (await mount.provider.current(NOW)).key == mount.key.read_text()
    [line] = log.text()
    assert line.startswith("WARNING cannot publish the CA certificate to agents")
