"""Where a receiver is, as a person writes it down. Pure."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

# Whose network is this very machine.
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class AddressError(Exception):
    """An address that cannot be used; says why and how to remedy, without what might be secret in it."""


class Address(Struct, frozen=True):
    """A receiver's address in its parts.

    name: what logs call it. place: the numbers under which it is reached, tried in turn; empty where the name
    service is asked for each connection.
    """

    name: str
    tls: bool
    host: str
    port: int
    path: str
    place: tuple[str, ...] = ()

    @property
    def numbered(self) -> bool:
        """Whether no name service knows more of it: a number of the network, or this very machine."""
        return self.host in _LOOPBACK or any(_is_number(self.host, one) for one in _FAMILIES)

    def at(self, place: tuple[str, ...]) -> Address:
        """The one of those behind this address who is at a place."""
        return replace(self, name=f"{self.name} at {' or '.join(place)}", place=place)


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


def _is_number(host: str, family: int) -> bool:
    try:
        return bool(socket.inet_pton(family, host))
    except OSError:
        return False


_FAMILIES = (socket.AF_INET, socket.AF_INET6)
_REMEDY = "write it as https://host:port/path"
