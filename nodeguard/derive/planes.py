"""Derived signals of adapters with several planes: separate networks that one adapter uses together. Pure.

A plane of InfiniBand is a port of a second RDMA device of the adapter. A plane of RoCE is a PCI function of
the adapter, with an RDMA device and a port of its own.
"""

from __future__ import annotations

from collections.abc import Iterable

from nodeguard.derive.derivation import Derivation, Values
from nodeguard.derive.latest_readings import LatestReadings
from nodeguard.model.target import bus_address

# Adapters with multiplane RoCE: ConnectX-8 and ConnectX-9. Source: documentation of NVIDIA Spectrum-X.
_MULTIPLANE = frozenset({"MT4131", "MT4133"})


def _lost_plane(latest: LatestReadings, port: str) -> Values:
    """`port.lost_plane`: whether a port is down and another plane of its adapter works."""
    is_up = latest.get(port, "port.up")
    if is_up is not None:
        others = _other_planes(latest, port)
        yield "port.lost_plane", not is_up and any(latest.get(other, "port.up") for other in others)


def _other_planes(latest: LatestReadings, port: str) -> Iterable[str]:
    signals = latest.read_signals(port)
    address = bus_address(str(signals.get("port.pci", "")))
    is_ethernet = signals.get("port.link_layer") == "Ethernet"
    if not is_ethernet or signals.get("port.device_type") not in _MULTIPLANE or address is None:
        return ()
    return (
        other
        for other, function in latest.read_values("port", "port.pci")
        if other != port and bus_address(str(function)) == address
    )


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
