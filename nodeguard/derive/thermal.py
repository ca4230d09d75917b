"""Temperatures as margins, whatever the model reports. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from nodeguard.model.signal import Scalar


def margins(signals: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """Degrees that are left to a GPU's slow-down, and to its memory's, from its readings.

    Newer models report a signed distance to their thermal limit (T.Limit), and slow down at a small negative
    one; older ones report degrees and thresholds in degrees. Where neither is whole there is no margin.
    Source: NVML's T.Limit fields 193 to 196 and nvmlDeviceGetTemperatureThreshold.
    """
    found: dict[str, Scalar] = {}
    distance = _number(signals, "gpu.temperature.limit_distance")
    limit = _number(signals, "gpu.temperature.slowdown_distance")
    celsius = _number(signals, "gpu.temperature")
    slowdown = _number(signals, "gpu.temperature.slowdown")
    if distance is not None:
        found["gpu.temperature.margin"] = distance - (limit if limit is not None else 0)
    elif celsius is not None and slowdown:
        found["gpu.temperature.margin"] = slowdown - celsius
    memory = _number(signals, "gpu.memory.temperature")
    highest = _number(signals, "gpu.memory.temperature_max")
    if memory is not None and highest:
        found["gpu.memory.temperature_margin"] = highest - memory
    return found


def _number(signals: Mapping[str, Scalar], name: str) -> float | None:
    value = signals.get(name)
    return None if value is None or isinstance(value, (bool, str)) else value
