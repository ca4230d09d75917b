"""Counters that stand at their maximum, and counters that should rise and do not. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from nodeguard.derive.derivation import Derivation, Values
from nodeguard.derive.latest_readings import LatestReadings
from nodeguard.model.observation import Observation, Reading
from nodeguard.model.signal import Scalar

_KEEP_ALIVE = "efa.keep_alive_rcvd"

# A counter's value and since when, in seconds since boot, it has not changed.
HeartbeatCounts = Mapping[str, tuple[float, float]]


def track_heartbeats(latest: LatestReadings, known: HeartbeatCounts) -> dict[str, tuple[float, float]]:
    """Return each EFA device's count of heartbeats, and since when it has not changed."""
    after: dict[str, tuple[float, float]] = {}
    for port, count in latest.read_values("port", _KEEP_ALIVE):
        if isinstance(count, int):
            before, since = known.get(port, (count, latest.mono))
            after[port] = (count, since if count == before else latest.mono)
    return after


def port_counter_derivations(bits: Mapping[str, int], known: HeartbeatCounts) -> tuple[Derivation, ...]:
    """Return the derivations for counters of ports.

    bits: width by name of counters that stop at their maximum. known: see still.
    """

    def saturated(latest: LatestReadings, port: str) -> Values:
        """`port.saturated` and `port.saturated_alike`: counters that stand at their maximum, or `none`.

        Where a counter stands there on each port of one firmware, several at least, the firmware does not
        count (ConnectX-7: excessive_buffer_overrun_errors reads 15); where on one port alone, something
        happened.
        """
        values = {name: latest.get(port, name) for name in bits}
        ended = [name for name, value in values.items() if value == maximum(name)]
        alike = [name for name in ended if is_at_maximum_elsewhere(latest, port, name)]
        if any(value is not None for value in values.values()):
            yield "port.saturated", _names(name for name in ended if name not in alike)
            yield "port.saturated_alike", _names(alike)

    def silence(latest: LatestReadings, port: str) -> Values:
        """`efa.silence`: seconds in which an EFA device counted no heartbeat."""
        if latest.get(port, _KEEP_ALIVE) is not None and port in known:
            yield "efa.silence", latest.mono - known[port][1]

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
        Derivation("port", ("efa.silence",), silence),
    )


def drop_unused_counters(reading: Reading, derived: Mapping[str, Mapping[str, Scalar]]) -> Reading:
    """Return a reading without the counters that a port's firmware does not count: they do not apply to it.

    derived: signals by slot, `port.saturated_alike` among them.
    """
    if reading.source != "infiniband":
        return reading
    unused = {slot: values.get("port.saturated_alike", "none") for slot, values in derived.items()}
    if all(names == "none" for names in unused.values()):
        return reading
    return replace(
        reading,
        observations=tuple(
            _without(seen, str(unused.get(seen.target, "none"))) for seen in reading.observations
        ),
    )


def _without(observation: Observation, names: str) -> Observation:
    unused = {f"port.{name}" for name in names.split(", ")}
    left = {name: value for name, value in observation.signals.items() if name not in unused}
    return replace(observation, signals=left) if len(left) < len(observation.signals) else observation


def _names(counters: Iterable[str]) -> str:
    return ", ".join(name.partition(".")[2] for name in counters) or "none"
