"""The ingest server, with agents' own transport and with clients that are no agents."""

from __future__ import annotations

import http.client
import logging
import resource
import ssl
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import pytest

from nodeguard.agent.reporting.http1 import TransportError
from nodeguard.agent.reporting.sender import ReplyError, read_reply
from nodeguard.aggregator.certificates.issue import CertificateAuthority, issue_authority
from nodeguard.aggregator.certificates.issue import issue_serving_certificate as serving_certificate
from nodeguard.aggregator.certificates.serving_certificate import tls_context
from nodeguard.aggregator.identity.caller import Caller, RequestRefusedError
from nodeguard.aggregator.identity.insecure import InsecureAuthenticator
from nodeguard.aggregator.ingest.limits import IngestLimits
from nodeguard.local.rate_limiter import Rate
from nodeguard.model.finding import Health
from nodeguard.wire.encoding import MESSAGE_LIMIT, decode_message, decode_reply, encode
from nodeguard.wire.instruction import ClearFinding, Reply
from nodeguard.wire.report import VERSION, Report
from tests.aggregator.ingest.scene import (
    LONG_TIMEOUTS,
    agent,
    connected,
    exchange,
    head,
    heartbeat,
    report,
    serving,
    serving_context,
    tokens,
)
from tests.aggregator.issuer import Issuer
from tests.controlplane.certificates import Authority
from tests.logs import LogLines
from tests.waiting import PATIENCE, until

MIB = 1024 * 1024
CLOSE = "Connection: close\r\n"


def test_messages_of_a_node_are_received_with_its_uid_and_acknowledged(
    issuer: Issuer, authority: Authority, tmp_path: Path, log: LogLines
) -> None:
    with serving(lambda: tokens(issuer), serving_context(authority)) as served:
        transport = agent(served, tmp_path / "token", issuer.token(), authority.certificate)
        for sequence, body in enumerate([report(sequence=0), heartbeat(sequence=1), heartbeat(sequence=2)]):
            response = transport.post(body)
            assert response.status == 200
            assert decode_reply(response.body)[0].acked_sequence == sequence
        transport.close()
        assert {caller for caller, _ in served.received} == {Caller("node-a", "uid-of-node-a")}
        assert [message.sequence for _, message in served.received] == [0, 1, 2]
        assert dict(served.ingest.endpoint.requests) == {("report", 200): 1, ("heartbeat", 200): 2}
        assert served.ingest.endpoint.received_bytes > 0
        assert log.text() == []
        until(lambda: served.ingest.connections == 0)


def test_no_control_character_of_a_message_is_received(issuer: Issuer, tmp_path: Path) -> None:
    with serving(lambda: tokens(issuer)) as served:
        transport = agent(served, tmp_path / "token", issuer.token("node-a"))
        forged_report = Report(
            version=VERSION, node="node-a", boot_id="b\x1b[31m", sequence=1, health=Health.OK, agent="\u202e"
        )
        assert transport.post(encode(forged_report)).status == 200
        transport.close()
        [(_, message)] = served.received
        assert isinstance(message, Report)
        assert (message.boot_id, message.agent) == ("b?[31m", "?")


def test_a_node_cannot_report_for_another(issuer: Issuer, tmp_path: Path, log: LogLines) -> None:
    with serving(lambda: tokens(issuer)) as served:
        transport = agent(served, tmp_path / "token", issuer.token("node-a"))
        response = transport.post(heartbeat("node-b"))
        assert response.status == 403
        with pytest.raises(
            ReplyError, match="answered 403: the message is of another node than the sender's"
        ):
            read_reply(response, decode_message(heartbeat("node-b")))
        assert transport.post(heartbeat("node-a")).status == 200
        transport.close()
        assert [caller.node for caller, _ in served.received] == ["node-a"]
        assert log.text()[0].startswith("WARNING request refused node=node-a status=403 reason=")
        assert "set the agent's `node`" in log.text()[0]


def token_of_another_cluster() -> str:
    other = Issuer(time.time())
    other.renew("another")
    return other.token()


def forged(token: str) -> str:
    return token[:-8] + "AAAAAAAA"


# Nodes that are shown as refused, with the reason.
REFUSED_NODES = {
    "has expired": [("node-a", "token-expired")],
    "is not valid yet": [("node-a", "token-not-yet-valid")],
}

# A part of the error by the token that causes it.
INVALID_TOKENS: dict[str, Callable[[Issuer], str]] = {
    "has expired": lambda issuer: issuer.token(exp=int(issuer.now) - 31),
    "is not valid yet": lambda issuer: issuer.token(nbf=int(issuer.now) + 600),
    "is not for nodeguard": lambda issuer: issuer.token(aud=["https://kubernetes.default.svc"]),
    "has no expiry time": lambda issuer: issuer.token(exp=None),
    "issuer is not this cluster's": lambda issuer: issuer.token(iss="https://elsewhere"),
    "of another service account": lambda issuer: issuer.token(sub="system:serviceaccount:default:default"),
    "bound to no pod": lambda issuer: issuer.token(kubernetes_io={"namespace": "nodeguard"}),
    "key is not one of this cluster's": lambda _: token_of_another_cluster(),
    "signature is invalid for this cluster": lambda issuer: forged(issuer.token(exp=int(issuer.now) - 31)),
    "is not a service account token": lambda _: "garbage",
    "this is not a service account": lambda _: "a.b.c",
}


@pytest.mark.parametrize("problem", INVALID_TOKENS)
def test_a_refused_client_gets_the_reason_and_no_log_has_its_token(
    issuer: Issuer,
    tmp_path: Path,
    problem: str,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    log: LogLines,
) -> None:
    caplog.set_level(logging.DEBUG)
    token = INVALID_TOKENS[problem](issuer)
    with serving(lambda: tokens(issuer)) as served:
        transport = agent(served, tmp_path / "token", token)
        response = transport.post(heartbeat())
        assert response.status in {401, 403}
        with pytest.raises(ReplyError, match=problem) as caught:
            read_reply(response, decode_message(heartbeat()))
        transport.close()
        assert served.received == []
        # Only a verified signature names a node.
        assert served.refused == REFUSED_NODES.get(problem, [])
        assert len(log.text()) == 1
    out = capfd.readouterr()
    for text in (response.body.decode(), str(caught.value), caplog.text, out.out, out.err, *log.text()):
        assert not [part for part in token.split(".") if len(part) > 3 and part in text]


def test_a_message_of_64_mib_costs_no_memory(issuer: Issuer, authority: Authority, tmp_path: Path) -> None:
    with serving(lambda: tokens(issuer), serving_context(authority)) as served:
        transport = agent(served, tmp_path / "token", issuer.token(), authority.certificate)
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
        assert transport.post(heartbeat()).status == 200
        transport.close()
        assert served.ingest.endpoint.requests["unknown", 413] >= 1


@pytest.mark.parametrize("path", ["nodes/node-a/drain", "nodes/node-a/gpus", "pause", "unmark"])
def test_an_agent_cannot_act_as_an_operator(issuer: Issuer, tmp_path: Path, path: str) -> None:
    with serving(lambda: tokens(issuer)) as served:
        transport = agent(served, tmp_path / "token", issuer.token())
        assert transport.post(heartbeat()).status == 200
        transport.close()
        client = http.client.HTTPConnection(served.address.split("/")[2], timeout=30.0)
        with closing(client):
            client.request("POST", f"/v1/{path}", b"{}", {"Authorization": f"Bearer {issuer.token()}"})
            assert client.getresponse().status == 404


@pytest.mark.slow
@pytest.mark.parametrize("chunked", [False, True])
def test_a_message_that_is_too_large_is_refused(chunked: bool) -> None:
    with serving(lambda: InsecureAuthenticator("127.0.0.1")) as served, connected(served) as sock:
        if chunked:
            piece = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
            start = b"POST /v1/messages HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
            response = exchange(sock, start, *[piece] * 5)
        else:
            response = exchange(sock, head(MESSAGE_LIMIT + 1))
        assert b"413" in response.splitlines()[0]
        assert f"at most {MESSAGE_LIMIT} bytes".encode() in response


def test_the_largest_message_is_accepted() -> None:
    with serving(lambda: InsecureAuthenticator("127.0.0.1")) as served, connected(served) as sock:
        body = heartbeat() + b" " * (MESSAGE_LIMIT - len(heartbeat()))
        response = exchange(sock, head(len(body), CLOSE), body)
        assert b"200 OK" in response
        assert len(served.received) == 1


def test_a_fleet_that_reconnects_at_once_is_accepted(
    issuer: Issuer, authority: Authority, tmp_path: Path
) -> None:
    with serving(lambda: tokens(issuer), serving_context(authority), LONG_TIMEOUTS) as served:
        names = [f"node-{number}" for number in range(200)]
        agents = [agent(served, tmp_path / name, issuer.token(name), authority.certificate) for name in names]
        with ThreadPoolExecutor(len(agents)) as threads:
            statuses = threads.map(
                lambda transport, name: transport.post(heartbeat(name), PATIENCE).status, agents, names
            )
            assert set(statuses) == {200}
        for transport in agents:
            transport.close()
        assert {caller.node for caller, _ in served.received} == set(names)


def test_a_refused_message_is_recorded_for_the_node_of_its_credential(
    issuer: Issuer, tmp_path: Path, log: LogLines
) -> None:
    def conflict(_: Caller, __: object) -> Reply:
        raise RequestRefusedError(
            409, "another boot of this node is reporting: wait 30 s", reason="other-boot"
        )

    with serving(lambda: tokens(issuer), limits=IngestLimits(node_rate=Rate(2.0, 0.01))) as served:
        served.handle = conflict
        transport = agent(served, tmp_path / "token", issuer.token())
        bodies = (heartbeat(), heartbeat("node-b"), b"{}", heartbeat(), heartbeat())
        responses = [transport.post(body) for body in bodies]
        assert [response.status for response in responses] == [409, 403, 400, 409, 429]
        assert responses[0].body == b"nodeguard: another boot of this node is reporting: wait 30 s\n"
        transport.close()
        unauthenticated = agent(served, tmp_path / "unauthenticated", "garbage")
        assert unauthenticated.post(heartbeat()).status == 401
        unauthenticated.close()
        assert served.refused == [
            ("node-a", "other-boot"),
            ("node-a", "forbidden"),
            ("node-a", "unreadable"),
            ("node-a", "other-boot"),
            ("node-a", "too-often"),
        ]
        senders = [line.split()[3] for line in log.text()]
        assert senders == ["node=node-a"] * 4 + ["address=127.0.0.1"]
        assert served.ingest.endpoint.requests["unknown", 409] == 2


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
def test_an_invalid_request_is_refused_with_a_message(
    sent: bytes,
    status: int,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    log: LogLines,
) -> None:
    caplog.set_level(logging.DEBUG)
    with serving(lambda: InsecureAuthenticator("127.0.0.1")) as served, connected(served) as sock:
        response = exchange(sock, sent)
        assert str(status).encode() in response.splitlines()[0]
        assert b"\r\n\r\nnodeguard: " in response
        out = capfd.readouterr()
        for text in (response.decode(), caplog.text, out.out, out.err, *log.text()):
            assert "secret" not in text
        assert served.received == []


def test_a_node_with_too_many_messages_has_to_wait(issuer: Issuer, tmp_path: Path) -> None:
    limits = IngestLimits(node_rate=Rate(3.0, 0.01))
    with serving(lambda: tokens(issuer), limits=limits) as served:
        agents = [agent(served, tmp_path / "token", issuer.token()) for _ in range(2)]
        responses = [transport.post(heartbeat()) for transport in agents for _ in range(2)]
        assert [response.status for response in responses] == [200, 200, 200, 429]
        assert responses[-1].retry_after == 100.0
        other = agent(served, tmp_path / "other", issuer.token("node-b"))
        assert other.post(heartbeat("node-b")).status == 200
        for transport in (*agents, other):
            transport.close()


def test_failed_authentications_are_limited_and_do_not_affect_authenticated_agents(
    issuer: Issuer, tmp_path: Path, log: LogLines
) -> None:
    limits = IngestLimits(failure_rate=Rate(3.0, 0.01))
    with serving(lambda: tokens(issuer), limits=limits) as served:
        good = agent(served, tmp_path / "token", issuer.token())
        assert good.post(heartbeat()).status == 200
        bad = agent(served, tmp_path / "bad", issuer.token(aud="other"))
        assert [bad.post(heartbeat()).status for _ in range(5)] == [401, 401, 401, 429, 429]
        assert good.post(heartbeat()).status == 200
        for transport in (good, bad):
            transport.close()
        assert len(log.text()) == 2


def test_the_authority_is_replaced_while_agents_report(issuer: Issuer, tmp_path: Path) -> None:
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
        for transport in (old, new, old):
            assert transport.post(heartbeat()).status == 200
        ca.write_text(second.certificate)
        old.close()
        assert old.post(heartbeat()).status == 200
        for transport in (old, new):
            transport.close()


def test_instructions_that_do_not_fit_wait_for_the_next_reply() -> None:
    many = tuple(ClearFinding(f"m-{number}", "c" * 250, "t" * 250, "p" * 250) for number in range(300))
    with serving(lambda: InsecureAuthenticator("127.0.0.1")) as served, connected(served) as sock:
        served.handle = lambda _, message: Reply(VERSION, message.sequence, instructions=many)
        response = exchange(sock, head(len(heartbeat()), CLOSE), heartbeat())
        reply, unknown = decode_reply(response.partition(b"\r\n\r\n")[2])
        assert reply.instructions == many[:75]
        assert unknown == ()


def test_an_internal_error_is_logged_without_client_data(log: LogLines) -> None:
    def broken(_: Caller, __: object) -> Reply:
        raise ValueError("secret")

    with serving(lambda: InsecureAuthenticator("127.0.0.1")) as served, connected(served) as sock:
        served.handle = broken
        response = exchange(sock, head(len(heartbeat()), CLOSE), heartbeat())
        assert b"500" in response.splitlines()[0]
        internal = log.text()[-1]
        assert internal.startswith("ERROR internal error in a request, please report it error=ValueError at ")
        assert "secret" not in response.decode() + internal


def test_a_closed_server_accepts_no_more_connections(issuer: Issuer, tmp_path: Path) -> None:
    with serving(lambda: tokens(issuer)) as served:
        transport = agent(served, tmp_path / "token", issuer.token())
        assert transport.post(heartbeat()).status == 200
        served.run(served.ingest.close())
        with pytest.raises(TransportError, match="see that it runs"):
            transport.post(heartbeat())
        transport.close()
