"""Derived signals of adapters with several planes: separate networks that one adapter uses together. Pure.

A plane of InfiniBand is a port of a second RDMA device of the adapter. A plane of RoCE is a PCI function of
the adapter, with an RDMA device and a port of its own.
"""

from __future__ import annotations

from nodeguard.derive.derivation import Derivation, Values
from nodeguard.derive.latest_readings import LatestReadings, UnreadError
from nodeguard.model.target import bus_address

# Adapters with multiplane RoCE: ConnectX-8 and ConnectX-9. Source: documentation of NVIDIA Spectrum-X.
_MULTIPLANE = frozenset({"MT4131", "MT4133"})


def _lost_plane(latest: LatestReadings, port: str) -> Values:
    """`port.lost_plane`: whether a port is down and another plane of its adapter works. Raises UnreadError
    where a port that works, or one that was not listed, may be such a plane.
    """
    is_up = latest.get(port, "port.up")
    if is_up is None:
        return
    unknown, has_working_plane = "", False
    for other in () if is_up else latest.targets("port"):
        is_plane = other != port and _is_plane_of(latest, other, port)
        if is_plane is None and latest.read_signals(other).get("port.up"):
            unknown = other
        has_working_plane |= is_plane is True and bool(latest.get(other, "port.up"))
    if unknown and not has_working_plane:
        raise UnreadError(f"the adapter of {port} or of {unknown} is not known")
    is_ethernet = latest.read_signals(port).get("port.link_layer") == "Ethernet"
    if not (is_up or has_working_plane) and is_ethernet and _may_have_planes(latest, port):
        latest.listed("infiniband", "port")
    yield "port.lost_plane", has_working_plane


def _is_plane_of(latest: LatestReadings, other: str, port: str) -> bool | None:
    """Return whether another port is a plane of the adapter of a port; None where that could not be read."""
    is_ethernet = latest.read_signals(port).get("port.link_layer") == "Ethernet"
    if not (is_ethernet or latest.unread_reason(port, "port.link_layer")):
        return False
    own, others = (
        bus_address(str(latest.read_signals(target).get("port.pci", ""))) for target in (port, other)
    )
    if own is not None and others is not None:
        return own == others and _may_have_planes(latest, port)
    return None if _may_have_planes(latest, port) and _may_have_planes(latest, other) else False


def _may_have_planes(latest: LatestReadings, port: str) -> bool:
    is_multiplane = latest.read_signals(port).get("port.device_type") in _MULTIPLANE
    return is_multiplane or bool(latest.unread_reason(port, "port.device_type"))


def _planes(latest: LatestReadings, port: str) -> Values:
    """`port.planes` and `port.planes_lost`: how many of them are down or slower than the others."""
    if latest.get(port, "port.up") is None:
        return
    rates = str(latest.get(port, "port.plane_rates") or "").split()
    speeds = [0.0 if rate == "down" else float(rate) for rate in rates if rate != "unread"]
    yield "port.planes", max(1, len(rates))
    yield "port.planes_lost", sum(speed < max(speeds) for speed in speeds)


PLANE_DERIVATIONS = (
    Derivation("port", ("port.lost_plane",), _lost_plane),
    Derivation("port", ("port.planes", "port.planes_lost"), _planes),
)
