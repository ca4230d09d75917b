"""Rotation of the certificate authority: every agent trusts the serving certificate at every time."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from nodeguard.aggregator.certificates.authority_view import authority_list
from nodeguard.aggregator.certificates.directory_store import DirectoryStore
from nodeguard.aggregator.certificates.issue import (
    InvalidHostError,
    issue_authority,
    issue_serving_certificate,
)
from nodeguard.aggregator.certificates.rotation import (
    AUTHORITY_LIFETIME,
    DAY,
    HOUR,
    OVERLAP,
    SERVING_LIFETIME,
    AuthorityState,
    CertificateAuthority,
    UnreadableStateError,
    add_authority,
    ca_bundle,
    decode_state,
    encode_state,
    mark_published,
    next_step,
    retire_authorities,
    signing_authority,
)
from nodeguard.aggregator.certificates.self_signed_authority import RotationError, SelfSignedAuthority
from nodeguard.aggregator.certificates.serving_certificate import ServingCertificate
from nodeguard.model.instant import rfc3339
from nodeguard.model.stored_authority import StoreConflictError, Stored, StoreError
from tests.aggregator.issuer import NOW
from tests.logs import LogLines


def authority(created: float, *, published: float = 0.0) -> CertificateAuthority:
    expires_at = created + AUTHORITY_LIFETIME
    return CertificateAuthority(f"certificate of {created}\n", "key", created, expires_at, published)


def rotate(state: AuthorityState, published: str, now: float) -> tuple[AuthorityState, str]:
    """Take all steps that are due. Return the state and the published bundle."""
    for _ in range(10):
        match next_step(state, published, now):
            case "add":
                state = add_authority(state, authority(now))
            case "publish":
                published = ca_bundle(state)
            case "mark":
                state = mark_published(state, now)
            case "retire":
                state = retire_authorities(state, now)
            case "nothing":
                return state, published
    raise AssertionError("the rotation does not end")


def test_the_first_authority_is_used_at_once() -> None:
    state, published = rotate(AuthorityState(), "", NOW)
    assert len(state.authorities) == 1
    assert published == ca_bundle(state)
    assert signing_authority(state, NOW) == state.authorities[0]


@settings(deadline=None, max_examples=60)
@given(st.lists(st.floats(60.0, 30 * DAY), min_size=60, max_size=120), st.floats(0.0, OVERLAP * 0.99))
def test_an_agent_with_a_bundle_of_the_last_day_trusts_the_signer(pauses: list[float], late: float) -> None:
    state, published, now = AuthorityState(), "", NOW
    history: list[tuple[float, str]] = []
    for pause in pauses:
        state, published = rotate(state, published, now)
        history.append((now, published))
        read = [text for at, text in history if at <= now - late] or [history[0][1]]
        by = signing_authority(state, now)
        assert by is not None
        assert now < by.expires_at
        assert by.certificate in read[-1]
        now += pause


def test_a_serving_certificate_is_trusted_until_it_expires() -> None:
    state, published, now = AuthorityState(), "", NOW
    served: list[tuple[float, str]] = []
    while now < NOW + 3 * AUTHORITY_LIFETIME:
        state, published = rotate(state, published, now)
        by = signing_authority(state, now)
        assert by is not None
        served.append((min(now + SERVING_LIFETIME, by.expires_at), by.certificate))
        assert all(certificate in published for until, certificate in served[-10:] if until > now)
        assert len(state.authorities) <= 2
        now += DAY
    assert len({certificate for _, certificate in served}) == 4


def test_an_expired_authority_is_replaced() -> None:
    state = AuthorityState(authorities=(authority(NOW, published=NOW),))
    state, published = rotate(state, ca_bundle(state), NOW + 2 * AUTHORITY_LIFETIME)
    by = signing_authority(state, NOW + 2 * AUTHORITY_LIFETIME)
    assert by == state.authorities[-1]
    assert by.certificate in published


def test_a_wrong_clock_removes_no_valid_authority() -> None:
    state = AuthorityState(authorities=(authority(NOW, published=NOW),))
    good = state.authorities[0]
    published = ca_bundle(state)
    for _ in range(20):
        state, published = rotate(state, published, NOW + 20 * AUTHORITY_LIFETIME)
    assert good in state.authorities
    assert good.certificate in published
    assert signing_authority(state, NOW + DAY) == good
    assert next_step(state, published, 0.0) == "nothing"


def test_an_authority_signs_only_a_day_after_its_publication() -> None:
    state = AuthorityState(authorities=(authority(NOW, published=NOW), authority(NOW + DAY)))
    assert signing_authority(state, NOW + 100 * DAY) == state.authorities[0]
    assert next_step(state, "", NOW + 100 * DAY) == "publish"
    state = mark_published(state, NOW + 100 * DAY)
    assert signing_authority(state, NOW + 100 * DAY + OVERLAP - 1) == state.authorities[0]
    assert signing_authority(state, NOW + 100 * DAY + OVERLAP) == state.authorities[1]


def test_a_stored_state_is_read_back_and_its_repr_has_no_key() -> None:
    state = AuthorityState(authorities=(authority(NOW),))
    assert decode_state(encode_state(state)) == state
    assert decode_state(b"") == AuthorityState()
    assert "key" not in repr(state)
    for data, reason in (
        (b"{", "has no authority"),
        (encode_state(replace(state, version=2)), "newer version"),
    ):
        with pytest.raises(UnreadableStateError, match=reason):
            decode_state(data)


async def test_two_replicas_agree_in_a_directory(tmp_path: Path) -> None:
    path = tmp_path / "authority"
    store = DirectoryStore(str(path))
    replica = SelfSignedAuthority(store, ["a.example", "10.0.0.7"])
    other = SelfSignedAuthority(DirectoryStore(str(path)), ["b.example"])
    first, second = await replica.current(NOW), await other.current(NOW)
    assert (path / "ca.crt").read_text().count("BEGIN") == 1
    assert (path / "authority.json").stat().st_mode & 0o777 == 0o600
    assert path.stat().st_mode & 0o777 == 0o700
    issuers = {
        x509.load_pem_x509_certificate(serving.certificate.encode()).issuer for serving in (first, second)
    }
    assert len(issuers) == 1
    assert first.expires_at == NOW + SERVING_LIFETIME
    assert await replica.current(NOW + 3 * DAY) == first
    assert (await replica.current(NOW + 4 * DAY)).expires_at == NOW + 11 * DAY
    assert "BEGIN" not in repr(first) + repr(await store.read())


async def test_a_concurrent_write_is_a_conflict(tmp_path: Path) -> None:
    store = DirectoryStore(str(tmp_path))
    before = await store.read()
    await store.keep(b"theirs", before)
    with pytest.raises(StoreConflictError):
        await store.keep(b"ours", before)
    assert (await store.read()).state == b"theirs"


async def test_with_an_unreadable_store_the_previous_authority_renews_certificates(
    tmp_path: Path, log: LogLines
) -> None:
    path = tmp_path / "authority"
    replica = SelfSignedAuthority(DirectoryStore(str(path)), ["a.example"])
    first = await replica.current(NOW)
    (path / "authority.json").write_text("{")
    assert await replica.current(NOW + HOUR) == first
    assert (await replica.current(NOW + 6 * DAY)).expires_at == NOW + 13 * DAY
    assert log.text() == [
        (
            "WARNING cannot update the certificate authority, the previous one stays in use "
            f"error={path}/authority.json cannot be used, it has no authority: delete it"
        )
    ]


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
        SelfSignedAuthority(DirectoryStore(str(tmp_path)), hosts)


async def test_a_directory_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = DirectoryStore(str(tmp_path / "file"))
    with pytest.raises(StoreError, match=r"file.*: make room, make it writable, or name another directory"):
        await store.keep(b"", await store.read())


class MemoryStore:
    """A store of the Secret and the ConfigMap."""

    name = "memory"

    def __init__(self) -> None:
        self.state, self.bundle, self.writes = b"", "", 0

    async def read(self) -> Stored:
        return Stored(self.state, str(self.writes), self.bundle, str(self.writes))

    async def keep(self, state: bytes, before: Stored) -> None:
        self.check(before.version)
        self.state = state

    async def publish(self, bundle: str, before: Stored) -> None:
        self.check(before.bundle_version)
        self.bundle = bundle

    def check(self, version: str) -> None:
        if version != str(self.writes):
            raise StoreConflictError
        self.writes += 1


def issuer_of(serving: ServingCertificate, bundle: str) -> str:
    """Return the certificate of a bundle that signed a serving certificate; empty for none."""
    leaf = x509.load_pem_x509_certificate(serving.certificate.encode())
    for authority in x509.load_pem_x509_certificates(bundle.encode()):
        if authority.subject == leaf.issuer:
            leaf.verify_directly_issued_by(authority)
            return authority.public_bytes(Encoding.PEM).decode()
    return ""


async def test_a_requested_rotation_never_breaks_the_trust_of_agents_that_are_a_day_late() -> None:
    store = MemoryStore()
    replicas = [SelfSignedAuthority(store, ["a.example"]) for _ in range(2)]
    first = await replicas[0].current(NOW)
    old = store.bundle
    now = NOW + 3 * DAY
    message = await replicas[0].rotate("ann", now)
    assert message == (
        f"agents get a new certificate authority now; it signs from {rfc3339(now + DAY)} on, and the old one is "
        f"trusted until {rfc3339(now + 9 * DAY)}"
    )
    assert store.bundle.count("BEGIN") == 2
    with pytest.raises(
        RotationError, match="not every agent trusts the newest authority yet: rotate after 20"
    ):
        await replicas[1].rotate("bob", now + HOUR)
    bundles = [(0.0, old), (now, store.bundle)]
    while now < NOW + 30 * DAY:
        for replica in replicas:
            serving = await replica.current(now)
            # An agent has read the bundle at most a day ago.
            for at, bundle in bundles:
                if at >= max(item for item, _ in bundles if item <= now - OVERLAP):
                    assert issuer_of(serving, bundle)
        if store.bundle != bundles[-1][1]:
            bundles.append((now, store.bundle))
        now += 6 * HOUR
    assert store.bundle.count("BEGIN") == 1
    assert old not in store.bundle
    assert issuer_of(first, store.bundle) == ""
    assert issuer_of(await replicas[0].current(now), store.bundle) == store.bundle


async def test_a_deleted_authority_is_restored_and_rotated(log: LogLines) -> None:
    store = MemoryStore()
    replica, other = (SelfSignedAuthority(store, ["a.example"]) for _ in range(2))
    first = await replica.current(NOW)
    old = store.bundle
    store.state = b""
    for _ in range(2):
        assert await replica.current(NOW + HOUR) == first
        assert issuer_of(await other.current(NOW + HOUR), old)
    assert old in store.bundle
    assert store.bundle.count("BEGIN") == 2
    [line] = log.text()
    assert line == (
        "WARNING the certificate authority was deleted, a new one is created store=memory effect=the previous "
        "authority stays until every agent trusts the new one remedy=to rotate the authority, use nodeguard "
        "authority rotate"
    )
    assert issuer_of(await replica.current(NOW + HOUR + DAY), old) == ""


async def test_published_certificates_stay_for_a_day_if_the_key_is_lost(log: LogLines) -> None:
    store = MemoryStore()
    serving = await SelfSignedAuthority(store, ["a.example"]).current(NOW)
    old, store.state = store.bundle, b""
    restarted = SelfSignedAuthority(store, ["a.example"])
    new = await restarted.current(NOW + HOUR)
    assert (issuer_of(serving, store.bundle), issuer_of(new, old)) == (old, "")
    assert issuer_of(new, store.bundle)
    assert "effect=agents cannot connect until their nodes have the new certificate" in log.text()[0]
    await restarted.current(NOW + HOUR + DAY)
    assert old not in store.bundle


async def test_a_first_authority_is_no_problem(log: LogLines) -> None:
    await SelfSignedAuthority(MemoryStore(), ["a.example"]).current(NOW)
    assert log.text() == []


async def test_the_view_of_the_authorities_follows_a_rotation() -> None:
    store = MemoryStore()
    replica = SelfSignedAuthority(store, ["a.example"])
    with pytest.raises(RotationError, match="no certificate authority yet"):
        await replica.rotate("", NOW)

    async def states(now: float) -> list[str]:
        await replica.current(now)
        return [item.state for item in authority_list(await replica.read(), "memory", now).authorities]

    assert await states(NOW) == ["signing"]
    await replica.rotate("", NOW + 2 * DAY)
    assert await states(NOW + 2 * DAY) == ["signing", "published"]
    assert await states(NOW + 4 * DAY) == ["trusted", "signing"]
    view = authority_list(await replica.read(), "memory", NOW + 4 * DAY)
    assert view.retired_from == rfc3339(NOW + 11 * DAY)
    assert await states(NOW + 11 * DAY) == ["signing"]


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
