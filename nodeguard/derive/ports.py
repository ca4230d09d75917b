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
    by_platform = _by_platform(world, platform)
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


def _by_platform(world: World, platform: Platform | None) -> set[str]:
    """Ports of the fabric that should be up: those that are, where that is enough of them, else all."""
    if platform is None:
        return set()
    ports = fabric(world, platform)
    if "port_devices" in platform.expect:
        return ports
    up = {slot for slot in ports if world.of(slot).get("port.up")}
    return up if len(up) >= _wanted(platform) else ports


def fabric(world: World, platform: Platform) -> set[str]:
    """Ports of the platform's compute fabric, as far as they are there.

    They are those with the names that it fixes; else, of those with its link layer, the most numerous make,
    and other boards of the same adapter as long as all together are no more than it has: a node's storage or
    management ports are few, and of another make.
    """
    names = platform.expect.get("port_devices")
    if isinstance(names, tuple):
        return {slot for slot in world.slots("port") if slot.split("/")[1] in names}
    layer = platform.expect.get("port_link_layer")
    makes: dict[tuple[Scalar | None, ...], list[str]] = {}
    for slot in world.slots("port"):
        make = tuple(map(world.of(slot).get, _MAKE))
        if layer is None or make[0] == layer:
            makes.setdefault(make, []).append(slot)
    by_number = sorted(makes, key=lambda make: -len(makes[make]))
    chosen: set[str] = set()
    for make in by_number:
        fits = make[:2] == by_number[0][:2] and len(chosen) + len(makes[make]) <= _wanted(platform)
        if not chosen or fits:
            chosen.update(makes[make])
    return chosen


_MAKE = ("port.link_layer", "port.device_type", "port.board")


def _wanted(platform: Platform) -> int:
    ports = platform.expect.get("ports")
    return ports if isinstance(ports, int) else 0
