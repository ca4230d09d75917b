"""Who is behind a receiver's name, by the numbers of the network, and who of them is told."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping

from nodeguard.agent.reporting.address import Address

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
