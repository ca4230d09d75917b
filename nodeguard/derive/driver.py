"""Whether the NVIDIA driver is being loaded, unloaded or changed just now. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from nodeguard.derive.world import World
from nodeguard.model.observation import Event
from nodeguard.model.signal import Scalar

# A driver that is being loaded or upgraded is no fault before this many seconds have passed.
PATIENCE = 600.0

_MOVES = frozenset({"driver.load", "driver.unload"})


def last_move(known: float | None, events: Iterable[Event]) -> float | None:
    """Seconds since boot when the driver was last loaded or unloaded, as far as the kernel log tells."""
    moments = [event.at for event in events if event.signal in _MOVES]
    return max([*moments, *([known] if known is not None else [])], default=None)


def changing(world: World, moved: float | None) -> dict[str, Scalar]:
    """`driver.changing`.

    The machine is young, the module is on its way in or out, or the log says that it moved lately.
    """
    uptime = world.node("host.uptime")
    young = isinstance(uptime, (int, float)) and uptime < PATIENCE
    moving = world.node("driver.module_state") in {"coming", "going"}
    lately = moved is not None and world.mono - moved < PATIENCE
    return {"driver.changing": bool(young or moving or lately)}


def branch(world: World) -> int | None:
    """The driver's branch, such as 580, from its version; None where it is not known."""
    version = world.node("driver.version") or world.node("nvml.driver_version")
    head = str(version or "").split(".")[0]
    return int(head) if head.isdigit() else None
