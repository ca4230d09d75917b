"""Derived signals of RDMA ports: which must be up, and which counters count. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from nodeguard.derive.derivation import Derivation, Once, Values
from nodeguard.derive.latest_readings import LatestReadings, UnreadError
from nodeguard.derive.network_ports import MAKE, is_network_port, network_ports
from nodeguard.model.observation import Observation, Reading
from nodeguard.model.platform import Platform
from nodeguard.model.signal import Scalar
from nodeguard.model.target import NODE


def port_derivations(platform: Platform | None, were_up: Mapping[str, float]) -> tuple[Derivation, ...]:
    """Return the derivations of `port.expected`, `port.expected_by` (platform, inventory, peers or itself),
    `port.in_fabric` and `port.wrong_layer`.

    A port that no reference expects has no signal: a cage without a cable is no fault. Where the platform has
    more ports of its fabric than are up, each port of that fabric that is down is expected.

    were_up: 1 by target for ports that were up before.
    """

    @Once
    def fabric(latest: LatestReadings) -> set[str]:
        return fabric_ports(platform, latest) if platform is not None else set()

    wanted = Once(lambda latest: _wanted_of_fabric(platform, latest, fabric(latest)))

    def expected(latest: LatestReadings, port: str) -> Values:
        if not is_network_port(latest, port):
            return
        is_up = latest.get(port, "port.up")
        by = _expected_by(latest, port, wanted, were_up) if is_up is not None else ""
        if by or is_up:
            yield "port.expected", True
            yield "port.expected_by", by or "itself"

    def in_fabric(latest: LatestReadings, port: str) -> Values:
        if platform is not None and latest.get(port, "port.up") is not None:
            yield "port.in_fabric", port in wanted(latest)

    def wrong_layer(latest: LatestReadings, port: str) -> Values:
        layer = platform.expect.get("port_link_layer") if platform is not None else None
        own, board = latest.get(port, "port.link_layer"), latest.get(port, "port.board")
        if platform is None or layer is None or own is None or board is None:
            return
        ports = fabric(latest)
        boards = {latest.get(other, "port.board") for other in ports}
        yield "port.wrong_layer", own != layer and board in boards and len(ports) < _wanted(platform)

    return (
        Derivation("port", ("port.wrong_layer",), wrong_layer),
        Derivation("port", ("port.expected", "port.expected_by"), expected),
        Derivation("port", ("port.in_fabric",), in_fabric),
    )


def _devices_on_the_bus(latest: LatestReadings) -> int:
    """Return the number of PCI functions with RDMA devices, as far as they were read.

    A function with several planes has a device for the planes besides that of its port.
    """
    numbers = (
        number for kind in ("pci", "port") for _, number in latest.read_values(kind, "pci.rdma_devices")
    )
    return sum(bool(number) for number in numbers)


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


def _wanted_of_fabric(platform: Platform | None, latest: LatestReadings, fabric: set[str]) -> set[str]:
    """Return the fabric ports that must be up: those that are, if they are enough, else all."""
    if platform is None or "port_devices" in platform.expect:
        return fabric
    up = {port for port in fabric if latest.get(port, "port.up")}
    return up if len(up) >= _wanted(platform) else fabric


def fabric_ports(platform: Platform, latest: LatestReadings) -> set[str]:
    """Return the present ports of the platform's compute fabric. Raises UnreadError.

    They are the ports with the platform's names; else, of those with its link layer, the most
    numerous make, and other boards of the same adapter as long as all together are no more than the platform
    has: a node's storage or management ports are few, and of another make.
    """
    listed = network_ports(latest) or frozenset()
    names = platform.expect.get("port_devices")
    if isinstance(names, tuple):
        return {port for port in listed if port.split("/")[1] in names}
    layer = platform.expect.get("port_link_layer")
    makes: dict[tuple[Scalar | None, ...], list[str]] = {}
    for port in sorted(listed):
        make = tuple(latest.get(port, signal) for signal in MAKE)
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


_KEEP_ALIVE = "efa.keep_alive_rcvd"

# Value of each device's heartbeat counter, and its last change in seconds since boot.
HeartbeatCounts = Mapping[str, tuple[float, float]]


def track_heartbeats(latest: LatestReadings, before: HeartbeatCounts) -> dict[str, tuple[float, float]]:
    """Return each EFA device's count of heartbeats and the time of its last change."""
    after: dict[str, tuple[float, float]] = {}
    for port, count in latest.read_values("port", _KEEP_ALIVE):
        if isinstance(count, int):
            last_count, since = before.get(port, (count, latest.mono))
            after[port] = (count, since if count == last_count else latest.mono)
    return after


def port_counter_derivations(bits: Mapping[str, int], heartbeats: HeartbeatCounts) -> tuple[Derivation, ...]:
    """Return the derivations for counters of ports.

    bits: width of each counter that stops at its maximum. heartbeats: see track_heartbeats.
    """

    def saturated(latest: LatestReadings, port: str) -> Values:
        """`port.saturated` and `port.saturated_alike`: counters at their maximum, or `none`.

        A counter at its maximum on several ports of one firmware, and on all of them, is not implemented by
        the firmware (ConnectX-7: excessive_buffer_overrun_errors reads 15). On a single port, it is a fault.
        A port that does not report its firmware may have that of any other.
        """
        values = {name: latest.get(port, name) for name in bits}
        at_maximum = [name for name, value in values.items() if value == maximum(name)]
        alike = [name for name in at_maximum if is_at_maximum_elsewhere(latest, port, name)]
        if any(value is not None for value in values.values()):
            yield "port.saturated", _names(name for name in at_maximum if name not in alike)
            yield "port.saturated_alike", _names(alike)

    def heartbeat_age(latest: LatestReadings, port: str) -> Values:
        """`efa.silence`: seconds since the latest heartbeat of an EFA device."""
        if latest.get(port, _KEEP_ALIVE) is not None and port in heartbeats:
            yield "efa.silence", latest.mono - heartbeats[port][1]

    def maximum(name: str) -> int:
        return (1 << bits[name]) - 1

    def is_at_maximum_elsewhere(latest: LatestReadings, port: str, name: str) -> bool:
        firmware = latest.get(port, "port.firmware")
        others = []
        for other, value in latest.read_values("port", name):
            firmwares = {firmware, latest.read_signals(other).get("port.firmware"), None}
            if other != port and len(firmwares) <= 2:
                others.append(value)
        return bool(others) and all(value == maximum(name) for value in others)

    return (
        Derivation("port", ("port.saturated", "port.saturated_alike"), saturated),
        Derivation("port", ("efa.silence",), heartbeat_age),
    )


def drop_unused_counters(reading: Reading, derived: Mapping[str, Mapping[str, Scalar]]) -> Reading:
    """Return a reading without the counters that a port's firmware does not implement.

    derived: signals by target, including `port.saturated_alike`.
    """
    if reading.source != "infiniband":
        return reading
    unused = {target: values.get("port.saturated_alike", "none") for target, values in derived.items()}
    if all(names == "none" for names in unused.values()):
        return reading
    return replace(
        reading,
        observations=tuple(
            _without(observation, str(unused.get(observation.target, "none")))
            for observation in reading.observations
        ),
    )


def _without(observation: Observation, names: str) -> Observation:
    unused = {f"port.{name}" for name in names.split(", ")}
    left = {name: value for name, value in observation.signals.items() if name not in unused}
    return replace(observation, signals=left) if len(left) < len(observation.signals) else observation


def _names(counters: Iterable[str]) -> str:
    return ", ".join(name.partition(".")[2] for name in counters) or "none"
