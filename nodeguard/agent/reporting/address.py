"""Where a receiver is, as a person writes it down. Pure."""

from __future__ import annotations

from urllib.parse import urlsplit

from msgspec import Struct

# Whose network is this very machine.
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class AddressError(Exception):
    """An address that cannot be used; says why and how to remedy, without what might be secret in it."""


class Address(Struct, frozen=True):
    """A receiver's address in its parts. name: what logs call it."""

    name: str
    tls: bool
    host: str
    port: int
    path: str


def parsed(address: str) -> Address:
    """An address, `https://host:port/path`; plain http to this very machine alone. Raises AddressError."""
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError:
        raise AddressError(f"the aggregator's address is not one: {_REMEDY}") from None
    if parts.username is not None or parts.query or parts.fragment:
        raise AddressError(f"the aggregator's address must hold no user, query or fragment: {_REMEDY}")
    if parts.scheme not in {"https", "http"} or not parts.hostname:
        raise AddressError(f"the aggregator's address names no host to reach by https: {_REMEDY}")
    if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
        raise AddressError(f"the aggregator's address would show the token to the network: {_REMEDY}")
    if not (address.isascii() and address.isprintable()) or " " in address:
        raise AddressError(f"the aggregator's address has letters that HTTP cannot carry: {_REMEDY}")
    tls = parts.scheme == "https"
    name = f"{parts.scheme}://{parts.netloc}"
    return Address(name, tls, parts.hostname, port or (443 if tls else 80), parts.path or "/")


_REMEDY = "write it as https://host:port/path"
