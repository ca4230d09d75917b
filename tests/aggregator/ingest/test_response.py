from __future__ import annotations

from nodeguard.aggregator.ingest.response import Response, encode_response, text_response

DATE = b"Date: Tue, 14 Nov 2023 22:13:20 GMT\r\n"


def test_a_reply_is_json_and_leaves_the_connection_open() -> None:
    assert encode_response(Response(200, b"{}"), 1.7e9, closes=False) == (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n" + DATE + b"\r\n{}"
    )


def test_a_refusal_has_its_reason_and_the_time_to_wait() -> None:
    assert encode_response(text_response(429, "wait", 1.2), 1.7e9, closes=True) == (
        b"HTTP/1.1 429 Too Many Requests\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 16\r\n"
        + DATE
        + b"Retry-After: 2\r\nConnection: close\r\n\r\nnodeguard: wait\n"
    )
