"""The signature of a request."""

from __future__ import annotations

import base64
import hmac
from hashlib import sha256

import pytest

from nodeguard.delivery.attempt import signed_headers


@pytest.mark.parametrize(("secret", "key"), [(b"a text", b"a text"), (b"whsec_aGVsbG8=", b"hello")])
def test_signature_follows_standard_webhooks(secret: bytes, key: bytes) -> None:
    headers = signed_headers(secret, "id-1", b"{}", 1_700_000_000.0)
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + b"{}"
    expected = base64.b64encode(hmac.new(key, signed, sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{expected}"
    assert (headers["webhook-id"], headers["webhook-timestamp"]) == ("id-1", "1700000000")


def test_without_a_secret_nothing_is_signed() -> None:
    assert "webhook-signature" not in signed_headers(b"", "id-1", b"{}", 0.0)
