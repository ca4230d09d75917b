"""Authentication by client certificates: the agent's transport against the real server."""

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
from tests.logs import LogLines
from tests.waiting import until


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def files(authority: Authority, name: str, *hosts: str, days: int = 0) -> CertificateFiles:
    pair = authority.issue(name, *hosts, days=days)
    return CertificateFiles(str(pair.certificate), str(pair.key))


def test_a_certificate_authorizes_its_common_name_and_its_dns_names(
    authority: Authority, tmp_path: Path, log: LogLines
) -> None:
    own = authority.issue("server", "127.0.0.1")
    ca = authority.certificate
    trust = tls_context(ServingCertificate(own.certificate.read_text(), own.key.read_text(), ca.read_text()))
    (tmp_path / "other").mkdir()
    other_authority = Authority(tmp_path / "other")
    with serving(CertificateAuthenticator, trust) as served:
        transport = BlockingTransport(
            served.address, None, str(ca), files(authority, "node-a", "node-a.example", "*.example")
        )
        for node, status in (("node-a", 200), ("node-a.example", 200), ("node-b", 403), ("x.example", 403)):
            assert transport.post(heartbeat(node)).status == status
        transport.close()
        assert served.received[0][0] == Caller("node-a", "node-a")

        anonymous = BlockingTransport(served.address, None, str(ca))
        response = anonymous.post(heartbeat())
        assert response.status == 401
        assert b"set certificate_file and key_file of `aggregator`" in response.body
        anonymous.close()

        nameless = BlockingTransport(served.address, None, str(ca), files(authority, "Not A Node"))
        assert b"its common name" in nameless.post(heartbeat()).body
        nameless.close()

        foreign = BlockingTransport(served.address, None, str(ca), files(other_authority, "node-a"))
        with pytest.raises(TransportError, match="and trusts who signed this node's certificate"):
            foreign.post(heartbeat())
        assert len(served.received) == 2
        until(
            lambda: "client certificate refused address=127.0.0.1 reason=it is not trusted" in log.text()[-1]
        )


WRONG_CLOCKS = [(-30, "has expired"), (30, "is not valid yet")]


@pytest.mark.parametrize(("days", "problem"), WRONG_CLOCKS)
def test_the_error_of_an_agents_certificate_out_of_its_validity_names_the_clocks(
    authority: Authority, days: int, problem: str, log: LogLines
) -> None:
    own, ca = authority.issue("server", "127.0.0.1"), authority.certificate
    trust = tls_context(ServingCertificate(own.certificate.read_text(), own.key.read_text(), ca.read_text()))
    with serving(CertificateAuthenticator, trust) as served:
        transport = BlockingTransport(served.address, None, str(ca), files(authority, "node-a", days=days))
        with pytest.raises(TransportError, match="and that both clocks are right") as caught:
            transport.post(heartbeat())
        assert "the CA" not in str(caught.value)
        today = time.strftime("%Y-%m-%d", time.gmtime())
        until(log.text)
        assert (
            f"reason=it {problem} by the clock of this machine, at which it is {today}: set that clock"
            in log.text()[0]
        )


@pytest.mark.parametrize(("days", "problem"), WRONG_CLOCKS)
def test_the_error_of_an_aggregators_certificate_out_of_its_validity_names_the_clock(
    authority: Authority, days: int, problem: str
) -> None:
    own, ca = authority.issue("server", "127.0.0.1", days=days), authority.certificate
    trust = tls_context(ServingCertificate(own.certificate.read_text(), own.key.read_text()))
    with serving(CertificateAuthenticator, trust) as served:
        transport = BlockingTransport(served.address, None, str(ca))
        with pytest.raises(
            TransportError, match=f"its certificate {problem} by the clock of this machine"
        ) as caught:
            transport.post(heartbeat())
        assert "the CA" not in str(caught.value)


def test_the_identity_expires_with_its_certificate() -> None:
    certificate = {"subject": ((("commonName", "node-a"),),), "notAfter": "Jan 15 08:00:00 2027 GMT"}
    assert identity_of_certificate(certificate).node_names == ("node-a",)
    assert abs(identity_of_certificate(certificate).expires_at - 1_800_000_000.0) < 86400 * 2


@pytest.mark.parametrize("missing", ["certificate", "key"])
def test_the_error_names_an_unusable_file(authority: Authority, tmp_path: Path, missing: str) -> None:
    good = files(authority, "node-a")
    other = files(authority, "node-b")
    path = str(tmp_path / "none")
    absent = (
        CertificateFiles(path, good.key)
        if missing == "certificate"
        else CertificateFiles(good.certificate, path)
    )
    mismatched = CertificateFiles(good.certificate, other.key)
    for invalid, problem in (
        (absent, f"{path}: No such file"),
        (mismatched, "not a certificate and its key"),
    ):
        with pytest.raises(TransportError, match=problem):
            BlockingTransport("https://127.0.0.1:9/", None, str(authority.certificate), invalid).post(b"")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "localhost", ""])
def test_without_authentication_the_server_listens_on_loopback_only(host: str) -> None:
    with pytest.raises(NotLoopbackError, match=r"listen there, or set --client-ca"):
        InsecureAuthenticator(host)


def test_an_insecure_identity_does_not_expire() -> None:
    assert InsecureAuthenticator("::1").cached(PresentedCredentials(), time.time()).node_names is None
