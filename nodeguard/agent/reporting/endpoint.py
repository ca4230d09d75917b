"""The addresses of aggregators: as configured, and as the name service resolves them."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

# Hosts that are this machine.
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})

# Replicas behind one name that get reports; a name with more does not belong to an aggregator.
MAX_REPLICAS = 4

_FAMILIES = (socket.AF_INET, socket.AF_INET6)
ADDRESS_REMEDY = "write it as https://host:port/path"

# The IP addresses of one replica, tried in turn: one, or one of each family.
ReplicaIps = tuple[str, ...]


class AddressError(Exception):
    """An invalid address; the message has the reason, and no secret of the address."""


class Address(Struct, frozen=True):
    """An aggregator's address in its parts.

    name: for logs. ips: of one replica, tried in turn; empty if the host is to be resolved.
    """

    name: str
    tls: bool
    host: str
    port: int
    path: str
    ips: ReplicaIps = ()

    @property
    def is_fixed(self) -> bool:
        """Whether the host needs no name service: an IP address, or this machine."""
        return self.host in _LOOPBACK or is_ip(self.host)

    def of_replica(self, ips: ReplicaIps) -> Address:
        """Return the address of the replica at some IP addresses."""
        return replace(self, name=f"{self.name} at {' or '.join(ips)}", ips=ips)


def parse_address(address: str) -> Address:
    """Return the parts of `https://host:port/path`; http is allowed for this machine. Raises AddressError."""
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError:
        raise AddressError("is no address") from None
    if parts.username is not None or parts.query or parts.fragment:
        raise AddressError("must not have a user, query or fragment")
    if not parts.hostname:
        raise AddressError("has no host")
    if parts.scheme not in {"https", "http"}:
        scheme = f"the scheme '{parts.scheme}'" if parts.scheme else "no scheme"
        raise AddressError(f"has {scheme} before the host {parts.hostname}, where https is expected")
    if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
        raise AddressError(f"would show the token to the network: only https may be used to {parts.hostname}")
    if not (address.isascii() and address.isprintable()) or " " in address:
        raise AddressError("has characters that HTTP does not allow")
    tls = parts.scheme == "https"
    name = f"{parts.scheme}://{parts.netloc}"
    return Address(name, tls, parts.hostname, port or (443 if tls else 80), parts.path or "/")


def is_ip(host: str) -> bool:
    """Return whether a host is an IP address."""
    return any(_is_ip_of(host, family) for family in _FAMILIES)


def _is_ip_of(host: str, family: int) -> bool:
    try:
        return bool(socket.inet_pton(family, host))
    except OSError:
        return False


def resolve(address: Address) -> tuple[ReplicaIps, ...]:
    """Return the IP addresses of every replica behind an address, from the name service.

    It blocks, and cannot be interrupted. Raises OSError, ValueError if there is no such name.
    """
    infos = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    return group_by_replica((family, str(sockaddr[0])) for family, _, _, _, sockaddr in infos)


def group_by_replica(resolved: Iterable[tuple[int, str]]) -> tuple[ReplicaIps, ...]:
    """Return the replicas of resolved IP addresses with their families, best first.

    One address in each family is one replica with two addresses. If a family has several, only the first
    family counts: nothing shows which addresses of two families belong to one replica, and no replica may be
    counted twice.
    """
    by_family: dict[int, dict[str, None]] = {}
    for family, ip in resolved:
        by_family.setdefault(family, {})[ip] = None
    if all(len(ips) == 1 for ips in by_family.values()):
        both = tuple(ip for ips in by_family.values() for ip in ips)
        return (both,) if both else ()
    return tuple((ip,) for ip in next(iter(by_family.values())))


def select_replicas(
    resolved: Iterable[ReplicaIps], current: Mapping[ReplicaIps, bool]
) -> tuple[ReplicaIps, ...]:
    """Return the replicas to report to, at most MAX_REPLICAS.

    resolved: the present answer of the name service; an empty answer changes nothing, since the name service
    may be down. current: the replicas until now, and whether they acknowledge. A replica that acknowledges
    stays even if it is not resolved: a name service may return a few addresses at a time, and a replica that
    is gone soon stops to acknowledge.
    """
    replicas = tuple(resolved)
    if not replicas:
        return tuple(current)
    present = [ips for ips in replicas if ips in current]
    new = [ips for ips in replicas if ips not in current]
    all_ips = {ip for ips in replicas for ip in ips}
    unresolved = [ips for ips, acknowledges in current.items() if acknowledges and all_ips.isdisjoint(ips)]
    return tuple([*present, *new, *unresolved][:MAX_REPLICAS])


def resolve_error(error: OSError | ValueError) -> str:
    """Return why a name could not be resolved, and the remedy."""
    reason = error.strerror if isinstance(error, OSError) and error.strerror else "it is not a name"
    return f"its name cannot be resolved ({reason}): check the address and the name service"
