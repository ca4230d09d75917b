from __future__ import annotations

import pytest

from nodeguard.agent.reporting.http1 import HttpResponse
from nodeguard.agent.reporting.sender import ReplyError, read_reply
from nodeguard.wire.report import VERSION, Heartbeat

BEAT = Heartbeat(version=VERSION, node="n", boot_id="b", sequence=1)


def refused(status: int, body: bytes) -> str:
    with pytest.raises(ReplyError) as error:
        read_reply(HttpResponse(status, body), BEAT)
    return str(error.value)


def test_an_aggregators_own_error_is_logged() -> None:
    message = refused(403, b"nodeguard: this is another node's: set `node`\n")
    assert message == "it answered 403: this is another node's: set `node`"


def test_only_a_conflict_is_a_refusal() -> None:
    for status, expected in ((409, True), (403, False), (500, False)):
        with pytest.raises(ReplyError) as error:
            read_reply(HttpResponse(status, b"nodeguard: why: remedy\n"), BEAT)
        assert error.value.is_refused == expected


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>no</html>",
        b"nodeguard: two\nlines",
        b"nodeguard: \x1b[2J",
        b"nodeguard: \xff\xfe",
        b"nodeguard: " + b"word " * 100,
        b"nodeguard: " + b"t" * 80,
    ],
)
def test_any_other_text_stays_out_of_the_log(body: bytes) -> None:
    assert refused(403, body) == "it answered 403: see that the token is this node's own"
    assert refused(500, body) == "it answered 500: its log has the reason"
