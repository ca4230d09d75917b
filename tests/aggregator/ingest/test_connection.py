"""Requests on one connection: parts, sequences, and the end of it."""

from __future__ import annotations

import socket

import pytest

from nodeguard.aggregator.identity.insecure import InsecureAuthenticator
from nodeguard.wire.encoding import decode_reply
from tests.aggregator.ingest.scene import connected, exchange, head, heartbeat, serving, tokens
from tests.aggregator.issuer import Issuer
from tests.waiting import until

CLOSE = "Connection: close\r\n"


def request(sequence: int, headers: str = "") -> bytes:
    body = heartbeat(sequence=sequence)
    return head(len(body), headers) + body


def acknowledged(responses: bytes) -> list[int | None]:
    """Return the acknowledged sequence of each response."""
    bodies = [part.partition(b"HTTP/1.1 ")[0] for part in responses.split(b"\r\n\r\n")[1:]]
    return [decode_reply(body)[0].acked_sequence for body in bodies]


@pytest.mark.parametrize("size", [1, 7, 100, 10_000])
def test_requests_are_answered_in_their_order_however_they_arrive(size: int) -> None:
    sent = request(1) + request(2) + request(3, CLOSE)
    with serving(lambda: InsecureAuthenticator("127.0.0.1")) as served, connected(served) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        responses = exchange(sock, *(sent[at : at + size] for at in range(0, len(sent), size)))
        assert acknowledged(responses) == [1, 2, 3]
        assert [message.sequence for _, message in served.received] == [1, 2, 3]
        until(lambda: served.ingest.connections == 0)


def test_requests_that_arrive_during_the_authentication_are_answered_after_it(issuer: Issuer) -> None:
    token = f"Authorization: Bearer {issuer.token()}\r\n"
    with serving(lambda: tokens(issuer)) as served, connected(served) as sock:
        responses = exchange(sock, request(1, token) + request(2, token) + request(3, token + CLOSE))
        assert acknowledged(responses) == [1, 2, 3]


def test_the_request_after_a_refused_one_is_answered(issuer: Issuer) -> None:
    token = f"Authorization: Bearer {issuer.token()}\r\n"
    body = heartbeat(sequence=2)
    with serving(lambda: tokens(issuer)) as served, connected(served) as sock:
        sock.sendall(head(len(body)))
        assert b"401" in sock.recv(65536)
        assert acknowledged(exchange(sock, body + request(3, token + CLOSE))) == [3]


def test_a_chunked_message_is_accepted() -> None:
    body = heartbeat()
    start = f"POST /v1/messages HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n{CLOSE}\r\n"
    with serving(lambda: InsecureAuthenticator("127.0.0.1")) as served, connected(served) as sock:
        chunk = f"{len(body):x}\r\n".encode() + body + b"\r\n0\r\n\r\n"
        assert acknowledged(exchange(sock, start.encode() + chunk)) == [1]


def test_a_connection_ends_after_a_request_of_http_1_0() -> None:
    with serving(lambda: InsecureAuthenticator("127.0.0.1")) as served, connected(served) as sock:
        assert acknowledged(exchange(sock, request(1).replace(b"HTTP/1.1", b"HTTP/1.0"))) == [1]


def test_a_request_for_another_protocol_is_answered_as_any_other() -> None:
    upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\n"
    with serving(lambda: InsecureAuthenticator("127.0.0.1")) as served, connected(served) as sock:
        sock.sendall(request(1, upgrade))
        assert acknowledged(sock.recv(65536)) == [1]
        assert acknowledged(exchange(sock, request(2, CLOSE))) == [2]


@pytest.mark.slow
def test_a_client_that_does_not_read_the_responses_is_closed(issuer: Issuer) -> None:
    def flood(sock: socket.socket) -> None:
        for _ in range(100_000):
            sock.sendall(request(1) * 100)

    with serving(lambda: tokens(issuer)) as served, connected(served) as sock:
        with pytest.raises(ConnectionError):
            flood(sock)
        until(lambda: served.ingest.connections == 0)
