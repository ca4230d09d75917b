"""The node's platform, matched by exact names. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from nodeguard.derive.latest_readings import LatestReadings, UnreadError
from nodeguard.model.platform import Platform, PlatformMatch


def match_platform(
    latest: LatestReadings, platforms: Iterable[Platform], named: str, instance_type: str, before: str
) -> Platform | None:
    """Return the platform with this id where one is named, else the first that matches, else the one before.

    instance_type: the cloud's name for the machine, empty where unknown. before: id of the platform at the
    last round, empty where it is not previous: a fault does not change the platform. Nothing matches
    by a part of a name: `gh200` is not `h200`.
    """
    candidates = tuple(platforms)
    if named:
        return next((platform for platform in candidates if platform.id == named), None)
    previous = next((candidate for candidate in candidates if candidate.id == before), None)
    names = {name for _, name in latest.read_values("gpu", "gpu.name")}
    facts: dict[str, object] = {
        "instance_type": instance_type or None,
        "gpu": names.pop() if len(names) == 1 else None,
    }
    for fact, signal in _SIGNALS.items():
        try:
            facts[fact] = latest.node_signal(signal)
        except UnreadError:
            if previous is not None:
                return previous
            facts[fact] = None
    matching = (
        candidate for candidate in candidates if any(_matches(match, facts) for match in candidate.match)
    )
    return next(matching, previous)


_SIGNALS = {
    "product_name": "host.product_name",
    "sys_vendor": "host.sys_vendor",
    "chassis_asset_tag": "host.chassis_asset_tag",
    "nvswitches": "nvswitch.pci_count",
}


def _matches(match: PlatformMatch, facts: dict[str, object]) -> bool:
    fields = {name: getattr(match, name) for name in match.__struct_fields__}
    required = {name: value for name, value in fields.items() if value not in {"", None}}
    least, switches = required.pop("nvswitches", 0), facts["nvswitches"]
    enough = isinstance(switches, int) and switches >= least if least else True
    return enough and bool(required) and all(facts[name] == value for name, value in required.items())
