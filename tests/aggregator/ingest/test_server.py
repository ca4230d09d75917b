"""The agent's own transport against the real server, and who is no agent."""

from __future__ import annotations

import http.client
import logging
import resource
import socket
import ssl
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest

from nodeguard.agent.reporting.http1 import TransportError
from nodeguard.agent.reporting.sender import ReplyError, read_reply
from nodeguard.aggregator.certificates.issue import issue_authority
from nodeguard.aggregator.certificates.issue import issue_serving_certificate as serving_certificate
from nodeguard.aggregator.certificates.rotation import CertificateAuthority
from nodeguard.aggregator.certificates.serving_certificate import ServingCertificate, tls_context
from nodeguard.aggregator.identity.caller import Caller, RequestRefusedError
from nodeguard.aggregator.identity.insecure import InsecureAuthenticator
from nodeguard.aggregator.ingest.limits import IngestLimits
from nodeguard.local.rate_limiter import Rate
from nodeguard.wire.encoding import MESSAGE_LIMIT, decode_message, decode_reply
from nodeguard.wire.instruction import ClearFinding, Reply
from nodeguard.wire.report import VERSION
from tests.aggregator.ingest.scene import agent, connected, head, heartbeat, report, said, serving, tokens
from tests.aggregator.issuer import Issuer
from tests.controlplane.certificates import Authority
from tests.waiting import PATIENCE, PROMPTLY, until

MIB = 1024 * 1024


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    (tmp_path / "authority").mkdir()
    return Authority(tmp_path / "authority")


def shown(authority: Authority, name: str = "server", *hosts: str) -> ssl.SSLContext:
    pair = authority.issue(name, *(hosts or ("127.0.0.1",)))
    return tls_context(ServingCertificate(pair.certificate.read_text(), pair.key.read_text()))


def test_a_node_is_heard_by_its_uid_and_answered(
    issuer: Issuer, authority: Authority, tmp_path: Path
) -> None:
    with serving(lambda: tokens(issuer), shown(authority)) as served:
        way = agent(served, tmp_path / "token", issuer.token(), authority.certificate)
        for sequence, body in enumerate([report(sequence=0), heartbeat(sequence=1), heartbeat(sequence=2)]):
            answer = way.post(body)
            assert answer.status == 200
            assert decode_reply(answer.body)[0].acked_sequence == sequence
        way.close()
        assert {caller for caller, _ in served.heard} == {Caller("node-a", "uid-of-node-a")}
        assert [message.sequence for _, message in served.heard] == [0, 1, 2]
        assert dict(served.ingest.endpoint.requests) == {("report", 200): 1, ("heartbeat", 200): 2}
        assert served.ingest.endpoint.received_bytes > 0
        assert served.told == []
        until(lambda: served.ingest.connections == 0)


def test_a_node_cannot_speak_for_another(issuer: Issuer, tmp_path: Path) -> None:
    with serving(lambda: tokens(issuer)) as served:
        way = agent(served, tmp_path / "token", issuer.token("node-a"))
        answer = way.post(heartbeat("node-b"))
        assert answer.status == 403
        with pytest.raises(
            ReplyError, match="answered 403: the message is of another node than the sender's"
        ):
            read_reply(answer, decode_message(heartbeat("node-b")))
        assert way.post(heartbeat("node-a")).status == 200
        way.close()
        assert [caller.node for caller, _ in served.heard] == ["node-a"]
        assert "set the agent's `node`" in served.told[0]


def _of_another_cluster() -> str:
    stranger = Issuer(time.time())
    stranger.renew("another")
    return stranger.token()


WRONG: dict[str, Callable[[Issuer], str]] = {
    "has expired": lambda issuer: issuer.token(exp=int(issuer.now) - 31),
    "is not valid yet": lambda issuer: issuer.token(nbf=int(issuer.now) + 600),
    "is not for nodeguard": lambda issuer: issuer.token(aud=["https://kubernetes.default.svc"]),
    "has no expiry time": lambda issuer: issuer.token(exp=None),
    "issuer is not this cluster's": lambda issuer: issuer.token(iss="https://elsewhere"),
    "of another service account": lambda issuer: issuer.token(sub="system:serviceaccount:default:default"),
    "bound to no pod": lambda issuer: issuer.token(kubernetes_io={"namespace": "nodeguard"}),
    "key is not one of this cluster's": lambda _: _of_another_cluster(),
    "signature is invalid for this cluster": lambda issuer: issuer.token()[:-8] + "AAAAAAAA",
    "is not a service account token": lambda _: "garbage",
    "this is not a service account": lambda _: "a.b.c",
}


@pytest.mark.parametrize("why", WRONG)
def test_whoever_is_not_let_in_learns_why_and_no_log_has_its_token(
    issuer: Issuer,
    tmp_path: Path,
    why: str,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    token = WRONG[why](issuer)
    with serving(lambda: tokens(issuer)) as served:
        way = agent(served, tmp_path / "token", token)
        answer = way.post(heartbeat())
        assert answer.status in {401, 403}
        with pytest.raises(ReplyError, match=why) as found:
            read_reply(answer, decode_message(heartbeat()))
        way.close()
        assert served.heard == []
        assert len(served.told) == 1
    out = capfd.readouterr()
    for place in (answer.body.decode(), str(found.value), caplog.text, out.out, out.err, *served.told):
        assert not [part for part in token.split(".") if len(part) > 3 and part in place]


def test_a_message_of_64_mib_costs_nothing(issuer: Issuer, authority: Authority, tmp_path: Path) -> None:
    with serving(lambda: tokens(issuer), shown(authority)) as served:
        way = agent(served, tmp_path / "token", issuer.token(), authority.certificate)
        # Sent in pieces, so that the memory measured is that of the server in this process.
        context = ssl._create_unverified_context()
        host, _, port = served.address.removeprefix("https://").partition("/")[0].rpartition(":")
        client = http.client.HTTPSConnection(host, int(port), context=context, timeout=30.0)
        headers = {"Content-Length": str(64 * MIB), "Authorization": f"Bearer {issuer.token()}"}
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with closing(client), suppress(OSError, http.client.HTTPException):
            client.request("POST", "/v1/messages", (bytes(MIB) for _ in range(64)), headers)
            assert client.getresponse().status == 413
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 8 * 1024
        assert way.post(heartbeat()).status == 200
        way.close()
        assert served.ingest.endpoint.requests["unknown", 413] >= 1


@pytest.mark.parametrize("chunked", [False, True])
def test_what_is_too_large_is_told_so(chunked: bool) -> None:
    with serving(lambda: InsecureAuthenticator("127.0.0.1")) as served, connected(served) as sock:
        if chunked:
            piece = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
            start = b"POST /v1/messages HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
            answer = said(sock, start, *[piece] * 5)
        else:
            answer = said(sock, head(MESSAGE_LIMIT + 1))
        assert b"413" in answer.splitlines()[0]
        assert f"at most {MESSAGE_LIMIT} bytes".encode() in answer


def test_the_largest_message_is_heard() -> None:
    with serving(lambda: InsecureAuthenticator("127.0.0.1")) as served, connected(served) as sock:
        body = heartbeat() + b" " * (MESSAGE_LIMIT - len(heartbeat()))
        answer = said(sock, head(len(body), "Connection: close\r\n"), body)
        assert b"200 OK" in answer
        assert len(served.heard) == 1


SLOW = IngestLimits(header_timeout=0.3, body_timeout=0.3, idle_timeout=0.3)
UNHURRIED = IngestLimits(header_timeout=2 * PATIENCE)


@pytest.mark.parametrize(
    "first", [b"", b"POST /v1/mess", head(1000)[:-2], head(1000), head(1000) + b"{", head(len(heartbeat())) + heartbeat()]
)  # fmt: skip
def test_whoever_is_slow_is_sent_away(first: bytes) -> None:
    with (
        serving(lambda: InsecureAuthenticator("127.0.0.1"), limits=SLOW) as served,
        connected(served) as sock,
    ):
        began = time.monotonic()
        said(sock, first)
        assert 0.2 < time.monotonic() - began < PROMPTLY
        until(lambda: served.ingest.connections == 0)
        assert served.ingest.endpoint.connection_errors["timeout"] == 1


def test_dripping_does_not_help() -> None:
    with (
        serving(lambda: InsecureAuthenticator("127.0.0.1"), limits=SLOW) as served,
        connected(served) as sock,
    ):
        began = time.monotonic()
        with suppress(ConnectionError):
            while time.monotonic() < began + PATIENCE:
                sock.sendall(b"x")
                time.sleep(0.05)
        assert time.monotonic() - began < PROMPTLY
        assert served.ingest.connections == 0


@pytest.mark.parametrize(
    "garbage", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00\x05hello", b"\x00" * 100, b""]
)
def test_who_speaks_no_tls_is_counted_and_makes_no_noise(
    authority: Authority, garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with serving(lambda: InsecureAuthenticator("127.0.0.1"), shown(authority)) as served:
        with connected(served) as sock:
            sock.sendall(garbage)
            sock.shutdown(socket.SHUT_WR)
            said(sock)
        until(lambda: served.ingest.endpoint.connection_errors["handshake-failed"] == 1)
        until(lambda: served.ingest.connections == 0)
        assert served.told == []
    assert caplog.text == ""


def test_silent_handshakes_keep_nobody_out_for_long(
    issuer: Issuer, authority: Authority, tmp_path: Path
) -> None:
    with serving(lambda: tokens(issuer), shown(authority), UNHURRIED) as served, ExitStack() as held:
        for _ in range(100):
            held.enter_context(connected(served))
        way = agent(served, tmp_path / "token", issuer.token(), authority.certificate)
        assert way.post(heartbeat(), PROMPTLY).status == 200
        way.close()


def test_a_fleet_that_comes_back_at_once_is_heard(
    issuer: Issuer, authority: Authority, tmp_path: Path
) -> None:
    with serving(lambda: tokens(issuer), shown(authority), UNHURRIED) as served:
        names = [f"node-{number}" for number in range(200)]
        ways = [agent(served, tmp_path / name, issuer.token(name), authority.certificate) for name in names]
        with ThreadPoolExecutor(len(ways)) as threads:
            answers = threads.map(lambda way, name: way.post(heartbeat(name), PATIENCE).status, ways, names)
            assert set(answers) == {200}
        for way in ways:
            way.close()
        assert {caller.node for caller, _ in served.heard} == set(names)


def test_a_message_that_is_refused_names_its_node_once_its_credential_has(
    issuer: Issuer, tmp_path: Path
) -> None:
    def conflict(_: Caller, __: object) -> Reply:
        raise RequestRefusedError(
            409, "another boot of this node is reporting: wait 30 s", reason="other-boot"
        )

    with serving(lambda: tokens(issuer), limits=IngestLimits(node_rate=Rate(2.0, 0.01))) as served:
        served.hear = conflict
        way = agent(served, tmp_path / "token", issuer.token())
        answers = [
            way.post(body) for body in (heartbeat(), heartbeat("node-b"), b"{}", heartbeat(), heartbeat())
        ]
        assert [one.status for one in answers] == [409, 403, 400, 409, 429]
        assert answers[0].body == b"nodeguard: another boot of this node is reporting: wait 30 s\n"
        way.close()
        stranger = agent(served, tmp_path / "stranger", "garbage")
        assert stranger.post(heartbeat()).status == 401
        stranger.close()
        assert served.refused == [
            ("node-a", "other-boot"),
            ("node-a", "forbidden"),
            ("node-a", "unreadable"),
            ("node-a", "other-boot"),
            ("node-a", "too-often"),
        ]
        assert [line.partition(":")[0] for line in served.told] == ["node-a"] * 4 + ["127.0.0.1"]
        assert served.ingest.endpoint.requests["unknown", 409] == 2


def test_a_request_that_is_refused_leaves_the_connection_as_it_was(issuer: Issuer, tmp_path: Path) -> None:
    """What is left of it comes after the answer, and is not taken for the head of another."""
    limits = IngestLimits(header_timeout=0.5, idle_timeout=30.0)
    with serving(lambda: tokens(issuer), limits=limits) as served, connected(served) as sock:
        sock.sendall(head(len(heartbeat())))
        assert b"401" in sock.recv(65536)
        sock.sendall(heartbeat())
        with connected(served) as silent:
            assert said(silent) == b"", "by its end the time for a head is over"
        sock.sendall(head(len(heartbeat()), f"Authorization: Bearer {issuer.token()}\r\n") + heartbeat())
        assert b"200 OK" in sock.recv(65536)
        assert served.ingest.endpoint.connection_errors["timeout"] == 1, "the silent one"


def test_a_handshake_that_does_not_come_ends(authority: Authority) -> None:
    with (
        serving(lambda: InsecureAuthenticator("127.0.0.1"), shown(authority), SLOW) as served,
        connected(served) as sock,
    ):
        began = time.monotonic()
        assert said(sock) == b""
        assert time.monotonic() - began < PROMPTLY
        until(lambda: served.ingest.connections == 0)


CLOSE = "Connection: close\r\n"


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"\x16\x03\x01hello\r\n\r\n", 400),
        (b"GET /v1/messages HTTP/1.1\r\nHost: a\r\n\r\n", 404),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}", 404),
        (b"POST /" + b"a" * 4000 + b" HTTP/1.1\r\n\r\n", 400),
        (head(2, "Authorization: Bearer " + "secret" * 4000 + "\r\n"), 400),
        (head(2, "X: y\r\n" * 100), 400),
        (head(-1), 400),
        (head(2, CLOSE) + b"{}", 400),
        (head(4, CLOSE) + b"\xff\xfe{}", 400),
        (head(6000, CLOSE) + b"[" * 6000, 400),
        (head(2, "Content-Encoding: gzip\r\n") + b"xx", 415),
    ],
)  # fmt: skip
def test_nonsense_is_refused_in_words(
    sent: bytes, status: int, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    with serving(lambda: InsecureAuthenticator("127.0.0.1")) as served, connected(served) as sock:
        answer = said(sock, sent)
        assert str(status).encode() in answer.splitlines()[0]
        assert b"\r\n\r\nnodeguard: " in answer
        out = capfd.readouterr()
        for place in (answer.decode(), caplog.text, out.out, out.err, *served.told):
            assert "secret" not in place
        assert served.heard == []


def test_who_comes_too_often_is_put_off(issuer: Issuer, tmp_path: Path) -> None:
    limits = IngestLimits(node_rate=Rate(3.0, 0.01))
    with serving(lambda: tokens(issuer), limits=limits) as served:
        ways = [agent(served, tmp_path / "token", issuer.token()) for _ in range(2)]
        answers = [way.post(heartbeat()) for way in ways for _ in range(2)]
        assert [one.status for one in answers] == [200, 200, 200, 429]
        assert answers[-1].retry_after == 100.0
        other = agent(served, tmp_path / "other", issuer.token("node-b"))
        assert other.post(heartbeat("node-b")).status == 200
        for way in (*ways, other):
            way.close()


def test_who_fails_often_is_not_looked_at_and_does_not_harm_those_who_are_known(
    issuer: Issuer, tmp_path: Path
) -> None:
    limits = IngestLimits(failure_rate=Rate(3.0, 0.01))
    with serving(lambda: tokens(issuer), limits=limits) as served:
        good = agent(served, tmp_path / "token", issuer.token())
        assert good.post(heartbeat()).status == 200
        bad = agent(served, tmp_path / "bad", issuer.token(aud="other"))
        assert [bad.post(heartbeat()).status for _ in range(5)] == [401, 401, 401, 429, 429]
        assert good.post(heartbeat()).status == 200
        for way in (good, bad):
            way.close()
        assert len(served.told) == 2


def test_the_authority_is_changed_while_agents_talk(issuer: Issuer, tmp_path: Path) -> None:
    first, second = issue_authority(time.time()), issue_authority(time.time())
    ca = tmp_path / "ca.pem"

    def signed(by: CertificateAuthority) -> ssl.SSLContext:
        return tls_context(serving_certificate(by, ["127.0.0.1"], time.time()))

    with serving(lambda: tokens(issuer), signed(first)) as served:
        old = agent(served, tmp_path / "token", issuer.token(), ca)
        new = agent(served, tmp_path / "token", issuer.token(), ca)
        ca.write_text(first.certificate)
        assert old.post(heartbeat()).status == 200
        ca.write_text(first.certificate + second.certificate)
        served.context = signed(second)
        for way in (old, new, old):
            assert way.post(heartbeat()).status == 200
        ca.write_text(second.certificate)
        old.close()
        assert old.post(heartbeat()).status == 200
        for way in (old, new):
            way.close()


def test_instructions_that_do_not_fit_wait() -> None:
    many = tuple(ClearFinding(f"m-{number}", "c" * 250, "t" * 250, "p" * 250) for number in range(300))
    with serving(lambda: InsecureAuthenticator("127.0.0.1")) as served, connected(served) as sock:
        served.hear = lambda _, message: Reply(VERSION, message.sequence, instructions=many)
        answer = said(sock, head(len(heartbeat()), "Connection: close\r\n"), heartbeat())
        reply, wrong = decode_reply(answer.partition(b"\r\n\r\n")[2])
        assert reply.instructions == many[:75]
        assert wrong == ()


def test_an_error_of_ours_is_told_without_what_was_sent() -> None:
    def broken(_: Caller, __: object) -> Reply:
        raise ValueError("secret")

    with serving(lambda: InsecureAuthenticator("127.0.0.1")) as served, connected(served) as sock:
        served.hear = broken
        answer = said(sock, head(len(heartbeat()), "Connection: close\r\n"), heartbeat())
        assert b"500" in answer.splitlines()[0]
        assert "ValueError at " in served.told[0]
        assert "secret" not in answer.decode() + served.told[0]


def test_the_end_answers_and_closes(issuer: Issuer, tmp_path: Path) -> None:
    with serving(lambda: tokens(issuer)) as served:
        way = agent(served, tmp_path / "token", issuer.token())
        assert way.post(heartbeat()).status == 200
        served.run(served.ingest.close())
        with pytest.raises(TransportError, match="see that it runs"):
            way.post(heartbeat())
        way.close()
