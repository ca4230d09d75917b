"""Which RDMA ports are expected to be up, and by whom. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from nodeguard.derive.world import World
from nodeguard.model.platform import Platform
from nodeguard.model.signal import Scalar


def expected(
    world: World, platform: Platform | None, were_up: Mapping[str, float]
) -> Iterator[tuple[str, dict[str, Scalar]]]:
    """For each port, `port.expected` and, where it is, `port.expected_by`: platform, inventory or peers.

    were_up: 1 by slot for ports that were up before. A port that nobody expects gives nothing: a cage without
    a cable is no fault. Where the platform has more ports of its fabric than are up, each port of that fabric
    that is down is expected.
    """
    ports = {slot: world.of(slot) for slot in world.slots("port") if "port.up" in world.of(slot)}
    by_platform = _by_platform(ports, platform)
    for slot, signals in ports.items():
        by = (
            "platform"
            if slot in by_platform
            else "inventory"
            if were_up.get(slot)
            else "peers"
            if signals.get("port.up~peers") is True
            else ""
        )
        if by or signals["port.up"]:
            yield slot, {"port.expected": True, "port.expected_by": by or "itself"}
        if platform is not None:
            yield slot, {"port.in_fabric": slot in by_platform}


def _by_platform(ports: Mapping[str, Mapping[str, Scalar]], platform: Platform | None) -> set[str]:
    if platform is None:
        return set()
    names = platform.expect.get("port_devices")
    if isinstance(names, tuple):
        return {slot for slot in ports if slot.split("/")[1] in names}
    wanted = platform.expect.get("ports")
    if not isinstance(wanted, int) or isinstance(wanted, bool):
        return set()
    fabric = _likeliest({slot: one for slot, one in ports.items() if in_fabric(one, platform)}, wanted)
    up = {slot for slot in fabric if ports[slot]["port.up"]}
    return fabric if len(up) < wanted else up


def _likeliest(ports: Mapping[str, Mapping[str, Scalar]], wanted: int) -> set[str]:
    """Ports of the most numerous makes, as many makes as it takes to have the number that is wanted.

    A node's storage or management ports are few and of another make than those of its fabric.
    """
    makes: dict[tuple[Scalar | None, ...], list[str]] = {}
    for slot, signals in ports.items():
        makes.setdefault((signals.get("port.device_type"), signals.get("port.board")), []).append(slot)
    chosen: set[str] = set()
    for slots in sorted(makes.values(), key=len, reverse=True):
        if len(chosen) < wanted:
            chosen.update(slots)
    return chosen


def in_fabric(signals: Mapping[str, Scalar], platform: Platform) -> bool:
    """Whether a port may be of the platform's compute fabric: it has its link layer."""
    layer = platform.expect.get("port_link_layer")
    return layer is None or signals.get("port.link_layer") == layer
