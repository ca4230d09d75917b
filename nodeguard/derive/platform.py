"""Which platform a node is, known exactly or not at all. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from nodeguard.derive.world import World
from nodeguard.model.platform import Match, Platform


def platform(
    world: World, platforms: Iterable[Platform], named: str, instance_type: str, before: str
) -> Platform | None:
    """The platform with this id where one is named, else the first that matches, else the one known before.

    instance_type: the cloud's name for the machine, empty where unknown. before: id of what the node was at
    the last look, empty where that is not known; what breaks does not make another machine of it. Nothing
    matches by a part of a name: `gh200` is not `h200`.
    """
    known = tuple(platforms)
    if named:
        return next((one for one in known if one.id == named), None)
    names = {world.of(slot).get("gpu.name") for slot in world.slots("gpu")} - {None}
    facts: dict[str, object] = {
        "product_name": world.node("host.product_name"),
        "sys_vendor": world.node("host.sys_vendor"),
        "chassis_asset_tag": world.node("host.chassis_asset_tag"),
        "instance_type": instance_type or None,
        "gpu": names.pop() if len(names) == 1 else None,
        "nvswitches": world.node("nvswitch.pci_count"),
    }
    found = next((one for one in known if any(_equal(match, facts) for match in one.match)), None)
    return found or next((one for one in known if one.id == before), None)


def _equal(match: Match, facts: dict[str, object]) -> bool:
    wanted = {name: getattr(match, name) for name in match.__struct_fields__}
    given = {name: value for name, value in wanted.items() if value not in {"", None}}
    least, switches = given.pop("nvswitches", 0), facts["nvswitches"]
    enough = isinstance(switches, int) and switches >= least if least else True
    return enough and bool(given) and all(facts[name] == value for name, value in given.items())
