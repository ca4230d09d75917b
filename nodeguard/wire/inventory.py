"""What a node is made of, from what its sources read. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from nodeguard.model.observation import Observation
from nodeguard.wire.report import Inventory, Occupant
from nodeguard.wire.words import name

_PARTS = 256


def inventory(observations: Iterable[Observation], platform: str = "") -> Inventory:
    """What observations tell of what the node is made of; of two of one slot, each adds what it knows."""
    driver = kernel = ""
    parts: dict[str, Occupant] = {}
    for one in observations:
        driver = name(one.signals.get("driver.version", driver))
        kernel = name(one.signals.get("host.kernel", kernel))
        vbios = name(one.signals.get("gpu.vbios", ""))
        firmware = name(one.signals.get("port.firmware", ""))
        if one.part is None and not vbios and not firmware:
            continue
        known = parts.get(name(one.slot), Occupant())
        parts[name(one.slot)] = Occupant(
            id=(name(one.part.id) if one.part else "") or known.id,
            model=(name(one.part.model) if one.part else "") or known.model,
            serial=(name(one.part.serial) if one.part else "") or known.serial,
            vbios=vbios or known.vbios,
            firmware=firmware or known.firmware,
        )
    kept = dict(sorted(parts.items())[:_PARTS])
    return Inventory(driver, kernel, name(platform), kept, len(parts) - len(kept))
