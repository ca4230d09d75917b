"""State of the NVIDIA driver: its branch, and whether it is being loaded, unloaded or changed. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from nodeguard.derive.derivation import Derivation, Values
from nodeguard.derive.latest_readings import LatestReadings
from nodeguard.model.observation import Event
from nodeguard.model.target import NODE

# Seconds after a load, an unload or a boot in which an absent driver is no fault.
CHANGE_PERIOD = 600.0

_CHANGE_EVENTS = frozenset({"driver.load", "driver.unload"})


def last_driver_change(before: float | None, events: Iterable[Event]) -> float | None:
    """Return the time of the last load or unload of the driver in seconds since boot; None where unknown."""
    times = [event.at for event in events if event.signal in _CHANGE_EVENTS]
    return max([*times, *([before] if before is not None else [])], default=None)


def driver_changing_derivation(changed_at: float | None) -> Derivation:
    """Return the derivation of `driver.changing`.

    It is true while the module is being loaded or unloaded, and for CHANGE_PERIOD after that and after a
    boot. changed_at: see last_driver_change.
    """

    def compute(latest: LatestReadings, _node: str) -> Values:
        is_recent = changed_at is not None and latest.mono - changed_at < CHANGE_PERIOD
        if is_recent or latest.node_signal("driver.module_state") in {"coming", "going"}:
            yield "driver.changing", True
        else:
            uptime = latest.node_signal("host.uptime")
            yield "driver.changing", isinstance(uptime, (int, float)) and uptime < CHANGE_PERIOD

    return Derivation(NODE, ("driver.changing",), compute)


def driver_branch(latest: LatestReadings) -> int | None:
    """Return the driver's branch, such as 580, from its version; None where it is not known."""
    versions = dict(latest.read_values(NODE, "nvml.driver_version")) | dict(
        latest.read_values(NODE, "driver.version")
    )
    branch = str(versions.get(NODE, "")).split(".")[0]
    return int(branch) if branch.isdigit() else None
