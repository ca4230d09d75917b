"""Whether the NVIDIA driver is being loaded, unloaded or changed just now. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from nodeguard.derive.derivation import Derivation, Values
from nodeguard.derive.latest_readings import LatestReadings
from nodeguard.model.observation import Event
from nodeguard.model.target import NODE

# A driver that is being loaded or upgraded is no fault before this many seconds have passed.
CHANGE_PERIOD = 600.0

_MOVES = frozenset({"driver.load", "driver.unload"})


def last_driver_change(known: float | None, events: Iterable[Event]) -> float | None:
    """Seconds since boot when the driver was last loaded or unloaded, as far as the kernel log tells."""
    moments = [event.at for event in events if event.signal in _MOVES]
    return max([*moments, *([known] if known is not None else [])], default=None)


def driver_changing_derivation(moved: float | None) -> Derivation:
    """Return the derivation of `driver.changing`.

    The module is on its way in or out, or the log reports that it was loaded or unloaded a short time ago, or
    the machine has just booted.

    moved: when the driver was last loaded or unloaded, in seconds since boot; None where that is not known.
    """

    def compute(latest: LatestReadings, _node: str) -> Values:
        if (moved is not None and latest.mono - moved < CHANGE_PERIOD) or latest.node_signal(
            "driver.module_state"
        ) in {
            "coming",
            "going",
        }:
            yield "driver.changing", True
        else:
            uptime = latest.node_signal("host.uptime")
            yield "driver.changing", isinstance(uptime, (int, float)) and uptime < CHANGE_PERIOD

    return Derivation(NODE, ("driver.changing",), compute)


def driver_branch(latest: LatestReadings) -> int | None:
    """Return the driver's branch, such as 580, from its version; None where it is not known."""
    values = dict(latest.read_values(NODE, "nvml.driver_version")) | dict(
        latest.read_values(NODE, "driver.version")
    )
    head = str(values.get(NODE, "")).split(".")[0]
    return int(head) if head.isdigit() else None
