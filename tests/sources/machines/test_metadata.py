from __future__ import annotations

import errno
import socket
import time

import pytest

from nodeguard.model.failure import StalledError
from nodeguard.sources.machine import ANSWER_LIMIT, MetadataRequest, MetadataResponse
from nodeguard.sources.machines.metadata import MetadataClient
from tests.sources.metadata_server import (
    TOKEN,
    TOKEN_PATH,
    Answer,
    dripping,
    endless,
    redirecting,
    serving,
    silent,
)
from tests.waiting import PROMPTLY

PLAIN = MetadataRequest("/a?b=c", {"X-Mine": "yes"})
AWS = MetadataRequest("/latest/meta-data/x", session=True)


def test_fetch_sends_the_request_and_returns_the_response(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with serving({"/a?b=c": "grüß"}) as server:
        assert MetadataClient(server.address).fetch(PLAIN, PROMPTLY) == MetadataResponse(200, "grüß")
        assert server.asked == [("GET", "/a?b=c")]
        assert server.headers["Host"] == "169.254.169.254"
        assert server.headers["X-Mine"] == "yes"
        assert server.headers["Connection"] == "close"


@pytest.mark.parametrize("status", [301, 400, 404, 410, 429, 500, 503])
def test_any_other_status_is_a_response_without_a_body(status: int) -> None:
    with serving({"/a?b=c": status}) as server:
        assert MetadataClient(server.address).fetch(PLAIN, PROMPTLY) == MetadataResponse(status)


def test_a_redirect_is_not_followed() -> None:
    with serving({"/a?b=c": redirecting, "/elsewhere": "here"}) as server:
        assert MetadataClient(server.address).fetch(PLAIN, PROMPTLY) == MetadataResponse(302)
        assert server.asked == [("GET", "/a?b=c")]


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (b"", errno.EPROTO),
        (b"220 mail.example.org ESMTP\r\n", errno.EPROTO),
        (b"\x00\xff\x00\xff", errno.EPROTO),
        (b"HTTP/1.1 abc OK\r\n\r\n", errno.EPROTO),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 90\r\n\r\nshort", errno.EPROTO),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", errno.EPROTO),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200 + b"\r\n", errno.EPROTO),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (ANSWER_LIMIT + 1), errno.EMSGSIZE),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 9000, errno.EMSGSIZE),
        (endless, errno.EMSGSIZE),
    ],
)
def test_invalid_and_too_long_responses_are_rejected(answer: Answer, code: int) -> None:
    with serving({"/a?b=c": answer}) as server, pytest.raises(OSError, match="Errno") as caught:
        MetadataClient(server.address).fetch(PLAIN, PROMPTLY)
    assert (caught.value.errno, caught.value.filename) == (code, PLAIN.call)


def test_response_of_the_maximum_length_is_complete() -> None:
    with serving({"/a?b=c": "x" * ANSWER_LIMIT}) as server:
        assert MetadataClient(server.address).fetch(PLAIN, PROMPTLY).body == "x" * ANSWER_LIMIT


@pytest.mark.parametrize("answer", [silent, dripping])
def test_fetch_raises_stalled_error_after_its_deadline(answer: Answer) -> None:
    with serving({"/a?b=c": answer}) as server:
        began = time.monotonic()
        with pytest.raises(StalledError) as caught:
            MetadataClient(server.address).fetch(PLAIN, 0.2)
        assert time.monotonic() - began < PROMPTLY
    assert caught.value.detail == PLAIN.call


def test_without_time_left_no_request_is_sent() -> None:
    with serving({}) as server:
        with pytest.raises(StalledError):
            MetadataClient(server.address).fetch(PLAIN, 0.0)
        assert server.asked == []


def test_connection_is_refused() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(ConnectionRefusedError) as caught:
            MetadataClient(taken.getsockname()).fetch(PLAIN, PROMPTLY)
    assert (caught.value.errno, caught.value.filename) == (errno.ECONNREFUSED, PLAIN.call)


def test_session_requests_one_token() -> None:
    with serving({AWS.path: "yes"}) as server:
        metadata = MetadataClient(server.address)
        assert [metadata.fetch(AWS, PROMPTLY), metadata.fetch(AWS, PROMPTLY)] == [
            MetadataResponse(200, "yes")
        ] * 2
        assert server.asked == [("PUT", TOKEN_PATH), ("GET", AWS.path), ("GET", AWS.path)]
        assert server.headers["X-aws-ec2-metadata-token"] == TOKEN


def test_expired_token_is_renewed_once() -> None:
    with serving({AWS.path: "yes"}) as server:
        metadata = MetadataClient(server.address)
        metadata.fetch(AWS, PROMPTLY)
        server.tokens.append("another")
        del server.asked[:]
        assert metadata.fetch(AWS, PROMPTLY) == MetadataResponse(200, "yes")
        assert server.asked == [("GET", AWS.path), ("PUT", TOKEN_PATH), ("GET", AWS.path)]
        server.answers[TOKEN_PATH] = "not-this-one"
        server.tokens.append("third")
        del server.asked[:]
        assert metadata.fetch(AWS, PROMPTLY) == MetadataResponse(401)
        assert len(server.asked) == 3


def test_token_is_renewed_before_it_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving({AWS.path: "yes"}) as server:
        metadata = MetadataClient(server.address)
        metadata.fetch(AWS, PROMPTLY)
        later = time.monotonic() + 20_001
        monkeypatch.setattr("nodeguard.sources.machines.metadata.time.monotonic", lambda: later)
        metadata.fetch(AWS, PROMPTLY)
        assert [method for method, _ in server.asked] == ["PUT", "GET", "PUT", "GET"]


@pytest.mark.parametrize("status", [401, 403, 410, 429, 503])
def test_refused_token_request_fails_the_request(status: int) -> None:
    with serving({TOKEN_PATH: status, AWS.path: "yes"}) as server:
        assert MetadataClient(server.address).fetch(AWS, PROMPTLY) == MetadataResponse(status)
        assert server.asked == [("PUT", TOKEN_PATH)]


@pytest.mark.parametrize("answer", [404, 302, 500, "", "two words", "a\r\nX-Evil: b", "x" * 2000, "tökn"])
def test_without_a_token_no_request_is_sent(answer: Answer) -> None:
    with serving({TOKEN_PATH: answer, AWS.path: "yes"}) as server:
        with pytest.raises(OSError, match="Errno") as caught:
            MetadataClient(server.address).fetch(AWS, PROMPTLY)
        assert caught.value.errno == errno.EKEYREJECTED
        assert server.asked == [("PUT", TOKEN_PATH)]


def test_token_request_without_an_answer_times_out() -> None:
    with serving({TOKEN_PATH: silent, AWS.path: "yes"}) as server:
        with pytest.raises(StalledError):
            MetadataClient(server.address).fetch(AWS, 0.2)
        assert server.asked == [("PUT", TOKEN_PATH)]
