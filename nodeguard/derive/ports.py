"""Expected RDMA ports: which ports must be up, and which reference expects them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from nodeguard.derive.derivation import Derivation, Once, Values
from nodeguard.derive.latest_readings import LatestReadings, UnreadError
from nodeguard.model.platform import Platform
from nodeguard.model.signal import Scalar
from nodeguard.model.target import NODE

_MAKE = ("port.link_layer", "port.device_type", "port.board")


def port_derivations(platform: Platform | None, were_up: Mapping[str, float]) -> tuple[Derivation, ...]:
    """Return the derivations of `port.expected`, `port.expected_by` (platform, inventory, peers or itself),
    `port.in_fabric`.

    A port that no reference expects has no signal: a cage without a cable is no fault. Where the platform has
    more ports of its fabric than are up, each port of that fabric that is down is expected.

    were_up: 1 by target for ports that were up before.
    """
    wanted = Once(lambda latest: _wanted_of_fabric(platform, latest))

    def expected(latest: LatestReadings, port: str) -> Values:
        is_up = latest.get(port, "port.up")
        by = _expected_by(latest, port, wanted, were_up) if is_up is not None else ""
        if by or is_up:
            yield "port.expected", True
            yield "port.expected_by", by or "itself"

    def in_fabric(latest: LatestReadings, port: str) -> Values:
        if platform is not None and latest.get(port, "port.up") is not None:
            yield "port.in_fabric", port in wanted(latest)

    return (
        Derivation("port", ("port.expected", "port.expected_by"), expected),
        Derivation("port", ("port.in_fabric",), in_fabric),
    )


def _devices_on_the_bus(latest: LatestReadings) -> int:
    """Return the number of RDMA devices that the PCI functions have registered, as far as they were read."""
    numbers = (
        number for kind in ("pci", "port") for _, number in latest.read_values(kind, "pci.rdma_devices")
    )
    return sum(number for number in numbers if isinstance(number, int))


def _expected_by(
    latest: LatestReadings,
    port: str,
    wanted: Callable[[LatestReadings], set[str]],
    were_up: Mapping[str, float],
) -> str:
    """Return the reference that expects a port to be up, empty without one.

    Inventory and peers count where the platform's ports could not be read. Raises UnreadError where these do
    not expect the port and the platform may.
    """
    unread = None
    try:
        if port in wanted(latest):
            return "platform"
    except UnreadError as error:
        unread = error
    if were_up.get(port):
        return "inventory"
    if latest.get(port, "port.up~peers") is True:
        return "peers"
    if unread is not None:
        raise unread
    return ""


def fabric_count_derivation(platform: Platform | None) -> Derivation:
    """Return the derivation of `port.fabric_count`, for a node of a known platform."""

    def count(latest: LatestReadings, _node: str) -> Values:
        listed = latest.listed("infiniband", "port")
        if platform is None or listed is None:
            return
        if not listed and latest.node_signal("rdma.function_count") is None:
            raise UnreadError("neither RDMA devices nor a PCI bus can be read")
        devices = {port.split("/")[1] for port in listed}
        if len(devices) < _devices_on_the_bus(latest):
            raise UnreadError("the bus has RDMA devices of which no port is listed")
        yield "port.fabric_count", len(fabric_ports(platform, latest))

    return Derivation(NODE, ("port.fabric_count",), count)


def _wanted_of_fabric(platform: Platform | None, latest: LatestReadings) -> set[str]:
    """Return the fabric ports that must be up: those that are, if they are enough, else all."""
    if platform is None:
        return set()
    ports_of_fabric = fabric_ports(platform, latest)
    if "port_devices" in platform.expect:
        return ports_of_fabric
    up = {port for port in ports_of_fabric if latest.get(port, "port.up")}
    return up if len(up) >= _wanted(platform) else ports_of_fabric


def fabric_ports(platform: Platform, latest: LatestReadings) -> set[str]:
    """Return the present ports of the platform's compute fabric. Raises UnreadError.

    They are the ports with the platform's names; else, of those with its link layer, the most
    numerous make, and other boards of the same adapter as long as all together are no more than the platform
    has: a node's storage or management ports are few, and of another make.
    """
    listed = latest.listed("infiniband", "port") or frozenset()
    names = platform.expect.get("port_devices")
    if isinstance(names, tuple):
        return {port for port in listed if port.split("/")[1] in names}
    layer = platform.expect.get("port_link_layer")
    makes: dict[tuple[Scalar | None, ...], list[str]] = {}
    for port in sorted(listed):
        make = tuple(latest.get(port, signal) for signal in _MAKE)
        if layer is None or make[0] == layer:
            makes.setdefault(make, []).append(port)
    by_number = sorted(makes, key=lambda make: -len(makes[make]))
    chosen: set[str] = set()
    for make in by_number:
        fits = make[:2] == by_number[0][:2] and len(chosen) + len(makes[make]) <= _wanted(platform)
        if not chosen or fits:
            chosen.update(makes[make])
    return chosen


def _wanted(platform: Platform) -> int:
    wanted = platform.expect.get("ports")
    return wanted if isinstance(wanted, int) else 0
