"""Ports of the network, as opposed to those through which Fabric Manager reaches NVSwitches. Pure.

Attribution moves the ports of functions that are known to manage NVSwitches to their NVSwitch. This module
decides about the ports of functions with an unknown role.
"""

from __future__ import annotations

from collections import Counter

from nodeguard.derive.derivation import Derivation, Values
from nodeguard.derive.latest_readings import LatestReadings, UnreadError
from nodeguard.model.signal import Scalar
from nodeguard.model.target import NODE, bus_address, pci_target

MAKE = ("port.link_layer", "port.device_type", "port.board")

# A network adapter has one or two functions, a board of eight GPUs has four that manage its NVSwitches.
_MOST_FUNCTIONS = 2
_MANAGERS = 4


def network_ports(latest: LatestReadings) -> frozenset[str] | None:
    """Return all ports of the network; None where there was no reading. Raises UnreadError."""
    listed = latest.listed("infiniband", "port")
    return None if listed is None else frozenset(port for port in listed if is_network_port(latest, port))


def is_network_port(latest: LatestReadings, port: str) -> bool:
    """Return whether a port is one of the network, as far as known.

    Raises UnreadError where the role of its function could not be read, and where the bus was read without
    the function of an InfiniBand port.
    """
    signals = latest.read_signals(port)
    if reason := latest.unread_reason(port, "pci.manages_nvswitches"):
        raise UnreadError(reason)
    if signals.get("port.link_layer") != "InfiniBand" or "port.pci" not in signals:
        return True
    is_on_bus = "pci.present" in signals or latest.has(pci_target(str(signals["port.pci"])))
    if not is_on_bus and latest.listed("pci", "pci") is not None:
        raise UnreadError("the bus does not list its function")
    return signals.get("pci.vpd") is not False or not _looks_like_a_manager(latest, port)


def _looks_like_a_manager(latest: LatestReadings, port: str) -> bool:
    """Return whether a port can be one of a function that manages NVSwitches.

    It belongs to a device with many functions or to a rarer make than others. Or the node has no more ports
    of its make than a board has managers, and more GPUs than that: a network for GPUs has a port for each.
    """
    address = bus_address(str(latest.read_signals(port)["port.pci"]))
    others = [bus_address(str(function)) for _, function in latest.read_values("port", "port.pci")]
    makes = Counter(_make(latest, other) for other in latest.targets("port"))
    of_its_make = makes[_make(latest, port)]
    is_rare = of_its_make < max(makes.values())
    has_few = of_its_make <= _MANAGERS < len(list(latest.targets("gpu")))
    return others.count(address) > _MOST_FUNCTIONS or is_rare or has_few


def _make(latest: LatestReadings, port: str) -> tuple[Scalar | None, ...]:
    return tuple(latest.get(port, name) for name in MAKE)


def _port_count(latest: LatestReadings, _node: str) -> Values:
    """`rdma.port_count`: the ports of the network."""
    if ports := network_ports(latest):
        yield "rdma.port_count", len(ports)


PORT_COUNT_DERIVATION = Derivation(NODE, ("rdma.port_count",), _port_count)
