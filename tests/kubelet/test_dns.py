"""The name server of the pods, as a resolver uses it."""

from __future__ import annotations

import struct

from tests.kubelet import dns

NAME = "nodeguard-aggregator.nodeguard.svc.cluster.local"


def query(name: str, kind: int = 1) -> bytes:
    """Return a query of one question, as RFC 1035 has it."""
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    return struct.pack("!HHHHHH", 7, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack("!HH", kind, 1)


def header(response: bytes) -> tuple[int, int, int]:
    """Return the id, the response code and the number of answers."""
    number, flags, _, answers = struct.unpack_from("!HHHH", response)
    return number, flags & 0xF, answers


def test_a_query_is_answered_with_each_address() -> None:
    asked = query(NAME)
    assert dns.question(asked)[:2] == (NAME, 1)
    response = dns.response(asked, ["10.244.1.2", "10.244.2.2"])
    assert header(response) == (7, 0, 2)
    assert response[12 : len(asked)] == asked[12:]
    assert response.endswith(bytes([0, 4, 10, 244, 2, 2]))


def test_an_unknown_name_does_not_exist() -> None:
    assert header(dns.response(query("example.com"), None)) == (7, 3, 0)


def test_another_type_of_a_name_has_no_answer() -> None:
    assert header(dns.response(query(NAME, kind=28), ["10.244.1.2"])) == (7, 0, 0)
