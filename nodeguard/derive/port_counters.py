"""Counters of ports: saturated ones, and heartbeats that do not rise. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from nodeguard.derive.derivation import Derivation, Values
from nodeguard.derive.latest_readings import LatestReadings
from nodeguard.model.observation import Observation, Reading
from nodeguard.model.signal import Scalar

_KEEP_ALIVE = "efa.keep_alive_rcvd"

# Value of each device's heartbeat counter, and its last change in seconds since boot.
HeartbeatCounts = Mapping[str, tuple[float, float]]


def track_heartbeats(latest: LatestReadings, before: HeartbeatCounts) -> dict[str, tuple[float, float]]:
    """Return each EFA device's count of heartbeats and the time of its last change."""
    after: dict[str, tuple[float, float]] = {}
    for port, count in latest.read_values("port", _KEEP_ALIVE):
        if isinstance(count, int):
            last_count, since = before.get(port, (count, latest.mono))
            after[port] = (count, since if count == last_count else latest.mono)
    return after


def port_counter_derivations(bits: Mapping[str, int], heartbeats: HeartbeatCounts) -> tuple[Derivation, ...]:
    """Return the derivations for counters of ports.

    bits: width of each counter that stops at its maximum. heartbeats: see track_heartbeats.
    """

    def saturated(latest: LatestReadings, port: str) -> Values:
        """`port.saturated` and `port.saturated_alike`: counters at their maximum, or `none`.

        A counter at its maximum on several ports of one firmware, and on all of them, is not implemented by
        the firmware (ConnectX-7: excessive_buffer_overrun_errors reads 15). On one port alone, it is a fault.
        """
        values = {name: latest.get(port, name) for name in bits}
        at_maximum = [name for name, value in values.items() if value == maximum(name)]
        alike = [name for name in at_maximum if is_at_maximum_elsewhere(latest, port, name)]
        if any(value is not None for value in values.values()):
            yield "port.saturated", _names(name for name in at_maximum if name not in alike)
            yield "port.saturated_alike", _names(alike)

    def heartbeat_age(latest: LatestReadings, port: str) -> Values:
        """`efa.silence`: seconds since the latest heartbeat of an EFA device."""
        if latest.get(port, _KEEP_ALIVE) is not None and port in heartbeats:
            yield "efa.silence", latest.mono - heartbeats[port][1]

    def maximum(name: str) -> int:
        return (1 << bits[name]) - 1

    def is_at_maximum_elsewhere(latest: LatestReadings, port: str, name: str) -> bool:
        firmware = latest.get(port, "port.firmware")
        others = [
            value
            for other, value in latest.read_values("port", name)
            if other != port
            and firmware is not None
            and latest.read_signals(other).get("port.firmware") == firmware
        ]
        return bool(others) and all(value == maximum(name) for value in others)

    return (
        Derivation("port", ("port.saturated", "port.saturated_alike"), saturated),
        Derivation("port", ("efa.silence",), heartbeat_age),
    )


def drop_unused_counters(reading: Reading, derived: Mapping[str, Mapping[str, Scalar]]) -> Reading:
    """Return a reading without the counters that a port's firmware does not implement.

    derived: signals by target, including `port.saturated_alike`.
    """
    if reading.source != "infiniband":
        return reading
    unused = {slot: values.get("port.saturated_alike", "none") for slot, values in derived.items()}
    if all(names == "none" for names in unused.values()):
        return reading
    return replace(
        reading,
        observations=tuple(
            _without(observation, str(unused.get(observation.target, "none")))
            for observation in reading.observations
        ),
    )


def _without(observation: Observation, names: str) -> Observation:
    unused = {f"port.{name}" for name in names.split(", ")}
    left = {name: value for name, value in observation.signals.items() if name not in unused}
    return replace(observation, signals=left) if len(left) < len(observation.signals) else observation


def _names(counters: Iterable[str]) -> str:
    return ", ".join(name.partition(".")[2] for name in counters) or "none"
