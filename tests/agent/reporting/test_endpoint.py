from __future__ import annotations

import socket

import pytest

from nodeguard.agent.reporting.endpoint import (
    Address,
    AddressError,
    ReplicaIps,
    group_by_replica,
    parse_address,
    resolve,
    resolve_error,
    select_replicas,
)

V4, V6 = socket.AF_INET, socket.AF_INET6
A, B, C, D, E = (("10.0.0.1",), ("10.0.0.2",), ("10.0.0.3",), ("10.0.0.4",), ("10.0.0.5",))


@pytest.mark.parametrize(
    ("address", "result"),
    [
        ("https://aggregator", Address("https://aggregator", True, "aggregator", 443, "/")),
        ("https://a.b:8443/v1/report", Address("https://a.b:8443", True, "a.b", 8443, "/v1/report")),
        ("https://[fd00::1]:9/x", Address("https://[fd00::1]:9", True, "fd00::1", 9, "/x")),
        ("http://127.0.0.1:80/x", Address("http://127.0.0.1:80", False, "127.0.0.1", 80, "/x")),
    ],
)
def test_an_address_is_parsed(address: str, result: Address) -> None:
    assert parse_address(address) == result


@pytest.mark.parametrize(
    "address",
    ["", "aggregator:443", "http://aggregator/", "ftp://x/", "https://", "https://user:secret@x/", "https://x:99999/",
     "https://x/?token=secret", "https://x/#secret", "https://x/a b", "https://[::1", "https://x/é", "https://x/\r\nA: b"],
)  # fmt: skip
def test_an_invalid_address_is_refused_without_its_secrets(address: str) -> None:
    with pytest.raises(AddressError) as result:
        parse_address(address)
    assert "secret" not in str(result.value)


@pytest.mark.parametrize(
    ("resolved", "expected"),
    [
        ([], ()),
        ([(V4, "10.0.0.1")], (A,)),
        ([(V4, "10.0.0.2"), (V4, "10.0.0.1"), (V4, "10.0.0.2")], (B, A)),
        ([(V6, "fd00::1"), (V4, "10.0.0.1")], (("fd00::1", "10.0.0.1"),)),
        ([(V6, "fd00::1"), (V6, "fd00::2"), (V4, "10.0.0.1"), (V4, "10.0.0.2")], (("fd00::1",), ("fd00::2",))),
        ([(V4, "10.0.0.1"), (V6, "fd00::1"), (V6, "fd00::2")], (A,)),
    ],
)  # fmt: skip
def test_each_replica_is_found_once(
    resolved: list[tuple[int, str]], expected: tuple[ReplicaIps, ...]
) -> None:
    assert group_by_replica(resolved) == expected


@pytest.mark.parametrize(
    ("resolved", "current", "expected"),
    [
        ((A, B), {}, (A, B)),
        ((A, B), {A: True}, (A, B)),
        ((B, A), {A: False}, (A, B)),
        ((), {A: True, B: False}, (A, B)),
        ((), {}, ()),
        ((C,), {A: False, B: True}, (C, B)),
        ((A, B, C, D, E), {E: False}, (E, A, B, C)),
        ((C, D, E), {A: True, B: True}, (C, D, E, A)),
        ((A, B), {("fd00::1", "10.0.0.1"): True}, (A, B)),
    ],
)
def test_resolved_replicas_are_selected_and_replicas_that_acknowledge_stay(
    resolved: tuple[ReplicaIps, ...], current: dict[ReplicaIps, bool], expected: tuple[ReplicaIps, ...]
) -> None:
    assert select_replicas(resolved, current) == expected


def test_a_name_is_resolved_by_the_name_service() -> None:
    address = parse_address("https://localhost:8443/")
    assert "127.0.0.1" in {ip for ips in resolve(address) for ip in ips}
    for unknown in ("https://no-such-name.invalid/", f"https://{'x' * 70}.invalid/", "https://a..b/"):
        with pytest.raises((OSError, ValueError)) as result:
            resolve(parse_address(unknown))
        assert isinstance(result.value, (OSError, ValueError))
        assert resolve_error(result.value).startswith("its name cannot be resolved (")
