"""Agents that show certificates: their own transport, the real server, and what is refused how."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from nodeguard.agent.reporting.credentials import CertificateFiles
from nodeguard.agent.reporting.http1 import TransportError
from nodeguard.aggregator.certificates.serving_certificate import ServingCertificate, tls_context
from nodeguard.aggregator.identity.caller import Caller, PresentedCredentials
from nodeguard.aggregator.identity.certificate import CertificateAuthenticator, identity_of_certificate
from nodeguard.aggregator.identity.insecure import InsecureAuthenticator, NotLoopbackError
from tests.agent.reporting.blocking import BlockingTransport
from tests.aggregator.ingest.scene import heartbeat, serving
from tests.controlplane.certificates import Authority
from tests.waiting import until


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def files(authority: Authority, name: str, *hosts: str, days: int = 0) -> CertificateFiles:
    pair = authority.issue(name, *hosts, days=days)
    return CertificateFiles(str(pair.certificate), str(pair.key))


def test_a_certificate_speaks_for_its_common_name_and_its_dns_names(
    authority: Authority, tmp_path: Path
) -> None:
    own = authority.issue("server", "127.0.0.1")
    ca = authority.certificate
    trust = tls_context(ServingCertificate(own.certificate.read_text(), own.key.read_text(), ca.read_text()))
    (tmp_path / "other").mkdir()
    stranger = Authority(tmp_path / "other")
    with serving(CertificateAuthenticator, trust) as served:
        way = BlockingTransport(
            served.address, None, str(ca), files(authority, "node-a", "node-a.example", "*.example")
        )
        for node, status in (("node-a", 200), ("node-a.example", 200), ("node-b", 403), ("x.example", 403)):
            assert way.post(heartbeat(node)).status == status
        way.close()
        assert served.heard[0][0] == Caller("node-a", "node-a")

        none = BlockingTransport(served.address, None, str(ca))
        answer = none.post(heartbeat())
        assert answer.status == 401
        assert b"set certificate_file and key_file of `aggregator`" in answer.body
        none.close()

        nameless = BlockingTransport(served.address, None, str(ca), files(authority, "Nobody At All"))
        assert b"its common name" in nameless.post(heartbeat()).body
        nameless.close()

        foreign = BlockingTransport(served.address, None, str(ca), files(stranger, "node-a"))
        with pytest.raises(TransportError, match="and trusts who signed this node's certificate"):
            foreign.post(heartbeat())
        assert len(served.heard) == 2
        until(lambda: "127.0.0.1: its certificate is not trusted" in served.told[-1])


WRONG_CLOCKS = [(-30, "has expired"), (30, "is not valid yet")]


@pytest.mark.parametrize(("days", "why"), WRONG_CLOCKS)
def test_an_agents_certificate_that_is_not_valid_now_names_the_clocks(
    authority: Authority, days: int, why: str
) -> None:
    own, ca = authority.issue("server", "127.0.0.1"), authority.certificate
    trust = tls_context(ServingCertificate(own.certificate.read_text(), own.key.read_text(), ca.read_text()))
    with serving(CertificateAuthenticator, trust) as served:
        way = BlockingTransport(served.address, None, str(ca), files(authority, "node-a", days=days))
        with pytest.raises(TransportError, match="and that both clocks are right") as found:
            way.post(heartbeat())
        assert "the CA" not in str(found.value)
        today = time.strftime("%Y-%m-%d", time.gmtime())
        until(lambda: served.told)
        assert served.told[0].startswith(
            f"127.0.0.1: its certificate {why} by the clock of this machine, at which it is {today}: set that clock"
        )


@pytest.mark.parametrize(("days", "why"), WRONG_CLOCKS)
def test_an_aggregators_certificate_that_is_not_valid_now_names_the_clock(
    authority: Authority, days: int, why: str
) -> None:
    own, ca = authority.issue("server", "127.0.0.1", days=days), authority.certificate
    trust = tls_context(ServingCertificate(own.certificate.read_text(), own.key.read_text()))
    with serving(CertificateAuthenticator, trust) as served:
        way = BlockingTransport(served.address, None, str(ca))
        with pytest.raises(
            TransportError, match=f"its certificate {why} by the clock of this machine"
        ) as found:
            way.post(heartbeat())
        assert "the CA" not in str(found.value)


def test_a_certificate_ends_though_its_connection_goes_on() -> None:
    shown = {"subject": ((("commonName", "node-a"),),), "notAfter": "Jan 15 08:00:00 2027 GMT"}
    assert identity_of_certificate(shown).node_names == ("node-a",)
    assert abs(identity_of_certificate(shown).expires_at - 1_800_000_000.0) < 86400 * 2


@pytest.mark.parametrize("missing", ["certificate", "key"])
def test_files_that_cannot_be_used_are_named(authority: Authority, tmp_path: Path, missing: str) -> None:
    good = files(authority, "node-a")
    other = files(authority, "node-b")
    path = str(tmp_path / "none")
    absent = (
        CertificateFiles(path, good.key)
        if missing == "certificate"
        else CertificateFiles(good.certificate, path)
    )
    for wrong, why in ((absent, f"{path}: No such file"), (CertificateFiles(good.certificate, other.key), "not a certificate and its key")):  # fmt: skip
        with pytest.raises(TransportError, match=why):
            BlockingTransport("https://127.0.0.1:9/", None, str(authority.certificate), wrong).post(b"")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "localhost", ""])
def test_without_identity_only_this_machine_is_heard(host: str) -> None:
    with pytest.raises(NotLoopbackError, match=r"listen there, or set --client-ca"):
        InsecureAuthenticator(host)


def test_a_wall_clock_of_long_ago_does_not_matter() -> None:
    assert InsecureAuthenticator("::1").cached(PresentedCredentials(), time.time()).node_names is None
