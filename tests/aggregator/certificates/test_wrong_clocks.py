"""Authorities that were created by a wrong clock, with real handshakes once the clock is right."""

from __future__ import annotations

import datetime
import json
import ssl
import time

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from nodeguard.aggregator.certificates.issue import DAY, HOUR, issue_authority
from nodeguard.aggregator.certificates.self_signed_authority import SelfSignedAuthority
from nodeguard.aggregator.certificates.serving_certificate import (
    CertificateRefresher,
    CertificateUnavailableError,
    ServingCertificate,
    tls_context,
)
from nodeguard.model.instant import rfc3339
from tests.aggregator.certificates.memory_store import MemoryStore
from tests.logs import LogLines

HOST = "a.example"


def handshake(serving: ServingCertificate, bundle: str) -> None:
    """Connect as an agent does. Raises SSLCertVerificationError."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = tls_context(serving).wrap_bio(up, down, server_side=True)
    client = ssl.create_default_context(cadata=bundle).wrap_bio(down, up, server_hostname=HOST)
    for end in (client, server, client, server):
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
    assert client.version() == "TLSv1.3"


@pytest.mark.parametrize("seconds", [2 * HOUR, 40 * DAY, 20 * 365 * DAY])
async def test_agents_connect_after_a_clock_that_was_ahead_is_corrected(seconds: float) -> None:
    store, bundle = MemoryStore(), MemoryStore()
    running, now = SelfSignedAuthority(store, bundle, [HOST]), time.time()
    await running.current(now + seconds)
    for corrected in (running, SelfSignedAuthority(store, bundle, [HOST])):
        handshake(await corrected.current(now), bundle.text)
    assert (store.writes, bundle.writes) == (1, 1)


def stored_by_earlier_version(begin: float) -> tuple[str, str]:
    """Return authority and bundle with a certificate that is valid from a time on, not from the earliest one."""
    issued = issue_authority(begin)
    key = serialization.load_pem_private_key(issued.key.encode(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    public = x509.load_pem_x509_certificate(issued.certificate.encode())
    builder = x509.CertificateBuilder(
        public.issuer, public.subject, public.public_key(), public.serial_number,
        datetime.datetime.fromtimestamp(begin, datetime.UTC), public.not_valid_after_utc,
        list(public.extensions),
    )  # fmt: skip
    signed = builder.sign(key, hashes.SHA256())
    text = signed.public_bytes(serialization.Encoding.PEM).decode()
    stored = {
        "certificate": text, "key": issued.key, "created_at": begin, "expires_at": issued.expires_at,
    }  # fmt: skip
    return json.dumps({"version": 1, "authorities": [stored]}), text


async def test_an_authority_that_is_not_valid_yet_is_named_with_the_remedy(log: LogLines) -> None:
    now = time.time()
    text, published = stored_by_earlier_version(now + 40 * DAY)
    running = SelfSignedAuthority(MemoryStore(text), MemoryStore(published), [HOST])
    with pytest.raises(ssl.SSLCertVerificationError, match="not yet valid"):
        handshake(await running.current(now + 40 * DAY), published)
    expected = (
        f"memory cannot be used, it is not valid before {rfc3339(now + 40 * DAY)}, and it is "
        f"{rfc3339(now)} by the clock of this machine: set that clock if it is wrong, else delete it"
    )
    with pytest.raises(CertificateUnavailableError) as refused:
        await running.current(now)
    assert str(refused.value) == expected
    refresher = CertificateRefresher(running, lambda: now)
    assert not await refresher.refresh()
    assert log.text()[-1] == f"ERROR no serving certificate, agents cannot connect error={expected}"
