"""The self-signed authority: created once, shared by replicas, and replaced when an operator deletes it."""

from __future__ import annotations

import json
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from nodeguard.aggregator.certificates.file_store import FileStore
from nodeguard.aggregator.certificates.issue import (
    AUTHORITY_LIFETIME,
    DAY,
    HOUR,
    SERVING_LIFETIME,
    InvalidHostError,
    issue_authority,
    issue_serving_certificate,
)
from nodeguard.aggregator.certificates.self_signed_authority import SelfSignedAuthority
from nodeguard.aggregator.certificates.serving_certificate import (
    CertificateUnavailableError,
    ServingCertificate,
)
from nodeguard.model.stored_text import StoredText, StoreError
from tests.aggregator.certificates.memory_store import MemoryStore
from tests.aggregator.issuer import NOW
from tests.logs import LogLines


def replica(store: MemoryStore, bundle: MemoryStore) -> SelfSignedAuthority:
    return SelfSignedAuthority(store, bundle, ["a.example"])


def in_directory(path: Path, *hosts: str) -> SelfSignedAuthority:
    store, bundle = FileStore(str(path / "authority.json"), 0o600), FileStore(str(path / "ca.crt"), 0o644)
    return SelfSignedAuthority(store, bundle, hosts)


def issuer_of(serving: ServingCertificate, bundle: str) -> str:
    """Return the certificate of a bundle that signed a serving certificate; empty for none."""
    leaf = x509.load_pem_x509_certificate(serving.certificate.encode())
    for authority in x509.load_pem_x509_certificates(bundle.encode()):
        if authority.subject == leaf.issuer:
            leaf.verify_directly_issued_by(authority)
            return authority.public_bytes(Encoding.PEM).decode()
    return ""


async def test_an_authority_is_created_once_and_renews_certificates_for_ten_years(log: LogLines) -> None:
    store, bundle = MemoryStore(), MemoryStore()
    replicas = [replica(store, bundle) for _ in range(2)]
    now = NOW
    while now < NOW + AUTHORITY_LIFETIME:
        for running in replicas:
            serving = await running.current(now)
            assert issuer_of(serving, bundle.text) == bundle.text
            assert now < serving.expires_at <= serving.authority_expires_at == NOW + AUTHORITY_LIFETIME
            assert serving.expires_at - now > min(SERVING_LIFETIME, NOW + AUTHORITY_LIFETIME - now) / 2 - DAY
        now += DAY
    assert (store.writes, bundle.writes) == (1, 1)
    assert log.text() == [
        "INFO created a certificate authority store=memory",
        "INFO published the CA certificate to agents store=memory",
    ]
    with pytest.raises(CertificateUnavailableError, match=r"authority has expired .*: delete memory$"):
        await replicas[0].current(now)


async def test_a_certificate_is_signed_again_after_the_clock_steps_back() -> None:
    """It would not be valid for days, and no agent would connect."""
    running = replica(MemoryStore(), MemoryStore())
    await running.current(NOW)
    await running.current(NOW + 5 * DAY)
    serving = await running.current(NOW + DAY)
    begin = x509.load_pem_x509_certificate(serving.certificate.encode()).not_valid_before_utc.timestamp()
    assert begin <= NOW + DAY
    assert serving == await running.current(NOW + 2 * DAY)


async def test_replicas_that_start_together_share_one_authority() -> None:
    store, bundle = MemoryStore(), MemoryStore()

    async def created() -> None:
        await replica(store, bundle).current(NOW)

    store.after_read = created
    assert issuer_of(await replica(store, bundle).current(NOW), bundle.text) == bundle.text
    assert (store.writes, bundle.writes) == (1, 1)


def stored_earlier(now: float, *, count: int = 1, published: bool = True) -> tuple[str, str]:
    """Return authority and bundle as an earlier version stored them: two years long, replaced in steps."""
    issued = [issue_authority(now + number * 3 * DAY, 730 * DAY) for number in range(count)]
    authorities = [
        {
            "certificate": authority.certificate,
            "key": authority.key,
            "created_at": authority.created_at,
            "expires_at": authority.expires_at,
            "published_at": authority.created_at if published else 0.0,
        }
        for authority in issued
    ]
    retained = [{"certificate": issue_authority(now).certificate, "until": now + DAY}]
    state = {"version": 1, "authorities": authorities, "retained": retained}
    return json.dumps(state), "".join(authority.certificate for authority in issued)


@pytest.mark.parametrize("count", [1, 2])
async def test_an_authority_of_an_earlier_version_stays_in_use(count: int) -> None:
    text, published = stored_earlier(NOW, count=count)
    store, bundle = MemoryStore(text), MemoryStore(published)
    running = replica(store, bundle)
    for now in (NOW + 4 * DAY, NOW + 700 * DAY):
        serving = await running.current(now)
        assert issuer_of(serving, published)
        # A replica of the earlier version reads what it wrote.
        assert (store.text, bundle.text) == (text, published)
    if count == 2:
        # The second one is trusted for long when the first one expires.
        assert issuer_of(await running.current(NOW + 731 * DAY), published)
        assert store.text == text


async def test_an_unpublished_authority_of_an_earlier_version_is_published_beside_the_first() -> None:
    text, published = stored_earlier(NOW, count=2, published=False)
    first = "-----BEGIN".join(published.split("-----BEGIN")[:2])
    bundle = MemoryStore(first)
    serving = await replica(MemoryStore(text), bundle).current(NOW + 4 * DAY)
    assert issuer_of(serving, first)
    assert sorted(bundle.text.split("-----BEGIN")) == sorted(published.split("-----BEGIN"))


async def test_an_earlier_version_reads_an_authority_of_this_one() -> None:
    """It needs these fields, and has nothing to add: it may have no right to update the Secret."""
    store, bundle = MemoryStore(), MemoryStore()
    await replica(store, bundle).current(NOW)
    state = json.loads(store.text)
    assert state.keys() == {"version", "authorities"}
    [authority] = state["authorities"]
    assert authority.keys() == {"certificate", "key", "created_at", "expires_at", "published_at"}
    assert authority["published_at"] == NOW
    assert (state["version"], authority["certificate"]) == (1, bundle.text)


async def test_a_deleted_authority_is_replaced_and_its_certificate_withdrawn(log: LogLines) -> None:
    store, bundle = MemoryStore(), MemoryStore()
    replicas = [replica(store, bundle) for _ in range(2)]
    for running in replicas:
        await running.current(NOW)
    old = bundle.text
    for deleted in (store, bundle):
        deleted.delete()
    for running in (*replicas, *replicas):
        serving = await running.current(NOW + HOUR)
        assert issuer_of(serving, bundle.text) == bundle.text != old
    assert log.text()[2:] == log.text()[:2]


async def test_an_authority_that_is_deleted_between_two_reads_is_not_published_again() -> None:
    store, bundle = MemoryStore(), MemoryStore()
    running, other = replica(store, bundle), replica(store, bundle)
    await running.current(NOW)
    old = bundle.text

    async def replaced() -> None:
        store.delete()
        bundle.delete()
        await other.current(NOW + HOUR)

    store.after_read = replaced
    for now in (NOW + HOUR, NOW + 2 * HOUR):
        await running.current(now)
        assert old not in bundle.text


async def test_the_certificate_of_a_deleted_authority_stays_if_the_bundle_stays() -> None:
    """Another replica, or one that uses cert-manager, still serves what that authority has signed."""
    store, bundle = MemoryStore(), MemoryStore()
    running, other = replica(store, bundle), replica(store, bundle)
    await running.current(NOW)
    serving = await other.current(NOW)
    old = bundle.text
    store.delete()
    assert issuer_of(await running.current(NOW + HOUR), bundle.text) not in {"", old}
    assert issuer_of(serving, bundle.text) == old


async def test_an_authority_in_a_directory(tmp_path: Path) -> None:
    path = tmp_path / "authority"
    running = in_directory(path, "a.example", "10.0.0.7")
    first = await running.current(NOW)
    assert (path / "authority.json").stat().st_mode & 0o777 == 0o600
    assert (path / "ca.crt").stat().st_mode & 0o777 == 0o644
    assert path.stat().st_mode & 0o777 == 0o700
    assert first.expires_at == NOW + SERVING_LIFETIME
    assert await running.current(NOW + 3 * DAY) == first
    assert (await running.current(NOW + 4 * DAY)).expires_at == NOW + 11 * DAY
    assert issuer_of(await in_directory(path, "a.example").current(NOW), (path / "ca.crt").read_text())
    stored = await FileStore(str(path / "authority.json"), 0o600).read()
    assert "BEGIN" in stored.text
    for name in ("authority.json", "ca.crt"):
        (path / name).unlink()
    replaced = await running.current(NOW + 5 * DAY)
    assert issuer_of(replaced, (path / "ca.crt").read_text())
    assert not issuer_of(first, (path / "ca.crt").read_text())
    assert "BEGIN" not in repr(first) + repr(stored) + repr(issue_authority(NOW))


async def test_with_an_unreadable_store_the_previous_authority_renews_certificates(
    tmp_path: Path, log: LogLines
) -> None:
    path = tmp_path / "authority"
    running = in_directory(path, "a.example")
    first = await running.current(NOW)
    (path / "authority.json").write_text("{")
    assert await running.current(NOW + HOUR) == first
    assert (await running.current(NOW + 6 * DAY)).expires_at == NOW + 13 * DAY
    assert log.text()[2:] == [
        (
            "WARNING cannot update the certificate authority, the previous one stays in use "
            f"error={path}/authority.json cannot be used, it has no authority: "
            "restore a copy, or delete it and give agents the new certificate of the authority"
        )
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "it has no authority: "),
        ('{"version": 1, "authorities": []}', "it has no authority: "),
        ('{"version": 2, "authorities": []}', r"it was written by a newer version \(2\): upgrade, or "),
        (
            '{"authorities": [{"certificate": "", "key": "", "created_at": 0, "expires_at": 9e9}]}',
            "the authority's certificate or key is invalid: ",
        ),
    ],
)
async def test_an_unusable_authority_is_kept_and_named(text: str, reason: str) -> None:
    store = MemoryStore(text)
    with pytest.raises(
        CertificateUnavailableError, match=f"memory cannot be used, {reason}restore a copy, or "
    ):
        await replica(store, MemoryStore()).current(NOW)
    assert store.text == text


@pytest.mark.parametrize(
    ("hosts", "problem"),
    [
        ([], "set --cert-host"),
        (["ü.example"], "'ü.example' is no host's name"),
        (["a b"], "correct it"),
    ],
)
def test_an_invalid_host_is_refused_at_the_start(tmp_path: Path, hosts: list[str], problem: str) -> None:
    with pytest.raises(InvalidHostError, match=problem):
        in_directory(tmp_path, *hosts)


async def test_a_directory_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = FileStore(str(tmp_path / "file" / "ca.crt"), 0o644)
    for work in (store.read(), store.write("", StoredText())):
        with pytest.raises(
            StoreError, match=r"file.*: make room, make it writable, or name another directory"
        ):
            await work


def test_issued_certificates_pass_strict_verification() -> None:
    """Newer versions of Python verify them in this way."""
    issued = issue_authority(NOW)
    serving = issue_serving_certificate(issued, ["nodeguard.example", "127.0.0.1", "::1"], NOW)
    ca = x509.load_pem_x509_certificate(issued.certificate.encode())
    leaf = x509.load_pem_x509_certificate(serving.certificate.encode())
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["nodeguard.example"]
    assert len(names.get_values_for_type(x509.IPAddress)) == 2
    store = x509.verification.Store([ca])
    verifier = x509.verification.PolicyBuilder().store(store).time(leaf.not_valid_before_utc).build_server_verifier(x509.DNSName("nodeguard.example"))  # fmt: skip
    assert len(verifier.verify(leaf, [])) == 2
    context = ssl.create_default_context(cadata=issued.certificate)
    assert context.cert_store_stats()["x509_ca"] == 1
