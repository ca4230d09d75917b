"""Which platform a node is, known exactly or not at all. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from nodeguard.derive.latest_readings import LatestReadings, UnreadError
from nodeguard.model.platform import Platform, PlatformMatch


def match_platform(
    latest: LatestReadings, platforms: Iterable[Platform], named: str, instance_type: str, before: str
) -> Platform | None:
    """Return the platform with this id where one is named, else the first that matches, else the one before.

    instance_type: the cloud's name for the machine, empty where unknown. before: id of the platform at the
    last look, empty where that is not known; what breaks does not make another machine of it. Nothing matches
    by a part of a name: `gh200` is not `h200`.
    """
    candidates = tuple(platforms)
    if named:
        return next((platform for platform in candidates if platform.id == named), None)
    known = next((candidate for candidate in candidates if candidate.id == before), None)
    names = {name for _, name in latest.read_values("gpu", "gpu.name")}
    facts: dict[str, object] = {
        "instance_type": instance_type or None,
        "gpu": names.pop() if len(names) == 1 else None,
    }
    for fact, signal in _SIGNALS.items():
        try:
            facts[fact] = latest.node_signal(signal)
        except UnreadError:
            if known is not None:
                return known
            facts[fact] = None
    matching = (
        candidate for candidate in candidates if any(_equal(match, facts) for match in candidate.match)
    )
    return next(matching, known)


_SIGNALS = {
    "product_name": "host.product_name",
    "sys_vendor": "host.sys_vendor",
    "chassis_asset_tag": "host.chassis_asset_tag",
    "nvswitches": "nvswitch.pci_count",
}


def _equal(match: PlatformMatch, facts: dict[str, object]) -> bool:
    wanted = {name: getattr(match, name) for name in match.__struct_fields__}
    given = {name: value for name, value in wanted.items() if value not in {"", None}}
    least, switches = given.pop("nvswitches", 0), facts["nvswitches"]
    enough = isinstance(switches, int) and switches >= least if least else True
    return enough and bool(given) and all(facts[name] == value for name, value in given.items())
