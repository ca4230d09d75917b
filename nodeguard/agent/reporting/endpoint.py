"""Where a receiver is, as a person writes it down. Pure."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
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


def parse_address(address: str) -> Address:
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


# Receivers behind one name that are told; a name with more is no aggregator's.
MOST = 4

# The numbers under which one receiver is reached, tried in turn.
Place = tuple[str, ...]


def asked(address: Address) -> tuple[Place, ...]:
    """The places of all who are behind an address, as the name service says now.

    It may take long, and cannot be cut short. Raises OSError, ValueError where there is no such name.
    """
    found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    return places((family, str(there[0])) for family, _, _, _, there in found)


def places(found: Iterable[tuple[int, str]]) -> tuple[Place, ...]:
    """Places out of numbers with their families, best first.

    One number of each family is one receiver that has both. Of several, the family that comes first counts:
    nothing tells which numbers of two families are the same receiver's, and each is to be told once.
    """
    by_family: dict[int, dict[str, None]] = {}
    for family, number in found:
        by_family.setdefault(family, {})[number] = None
    if all(len(numbers) == 1 for numbers in by_family.values()):
        both = tuple(number for numbers in by_family.values() for number in numbers)
        return (both,) if both else ()
    return tuple((number,) for number in next(iter(by_family.values())))


def wanted(named: Iterable[Place], had: Mapping[Place, bool], most: int = MOST) -> tuple[Place, ...]:
    """The places to be told, so many at most.

    named: what the name says now. had: who was told until now, and whether they hear. A name that says
    nothing says nothing new: it may be the name service that is down. Who hears stays, named or not: a name
    service may tell of a few at a time; who is gone will not hear for long.
    """
    says = tuple(named)
    if not says:
        return tuple(had)
    known = [place for place in says if place in had]
    new = [place for place in says if place not in had]
    numbers = {number for place in says for number in place}
    unnamed = [place for place, hears in had.items() if hears and numbers.isdisjoint(place)]
    return tuple([*known, *new, *unnamed][:most])


def unnamed(error: OSError | ValueError) -> str:
    """Why a name was not found, and what to do."""
    why = error.strerror if isinstance(error, OSError) and error.strerror else "it is no name"
    return f"its name is not found ({why}): check the address and the name service"
