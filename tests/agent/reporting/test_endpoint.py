from __future__ import annotations

import pytest

from nodeguard.agent.reporting.endpoint import Address, AddressError, parse_address


@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("https://aggregator", Address("https://aggregator", True, "aggregator", 443, "/")),
        ("https://a.b:8443/v1/report", Address("https://a.b:8443", True, "a.b", 8443, "/v1/report")),
        ("https://[fd00::1]:9/x", Address("https://[fd00::1]:9", True, "fd00::1", 9, "/x")),
        ("http://127.0.0.1:80/x", Address("http://127.0.0.1:80", False, "127.0.0.1", 80, "/x")),
    ],
)
def test_an_address_has_parts(address: str, found: Address) -> None:
    assert parse_address(address) == found


@pytest.mark.parametrize(
    "address",
    ["", "aggregator:443", "http://aggregator/", "ftp://x/", "https://", "https://user:secret@x/", "https://x:99999/",
     "https://x/?token=secret", "https://x/#secret", "https://x/a b", "https://[::1", "https://x/é", "https://x/\r\nA: b"],
)  # fmt: skip
def test_an_address_that_is_none_is_refused_with_a_remedy(address: str) -> None:
    with pytest.raises(AddressError, match="write it as https://host:port/path") as found:
        parse_address(address)
    assert "secret" not in str(found.value)
