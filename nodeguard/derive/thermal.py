"""Temperatures as margins to their limit, for old and new GPU models. Pure.

Newer models report a signed distance to their thermal limit (T.Limit), and slow down at a small negative one;
older ones report degrees and thresholds in degrees. Source: NVML's T.Limit fields 193 to 196 and
nvmlDeviceGetTemperatureThreshold.
"""

from __future__ import annotations

from nodeguard.derive.derivation import Derivation, Values
from nodeguard.derive.latest_readings import LatestReadings


def _margin(latest: LatestReadings, gpu: str) -> Values:
    """`gpu.temperature.margin`: degrees to the GPU's slow-down; none where both forms are incomplete."""
    distance = _number(latest, gpu, "gpu.temperature.limit_distance")
    if distance is not None:
        limit = _number(latest, gpu, "gpu.temperature.slowdown_distance")
        yield "gpu.temperature.margin", distance - (limit or 0)
        return
    celsius = _number(latest, gpu, "gpu.temperature")
    slowdown = _number(latest, gpu, "gpu.temperature.slowdown")
    if celsius is not None and slowdown:
        yield "gpu.temperature.margin", slowdown - celsius


def _busy_margin(latest: LatestReadings, gpu: str) -> Values:
    """`gpu.temperature.busy_margin`: the margin of a GPU in use; an idle GPU is no peer for it."""
    margin = latest.get(gpu, "gpu.temperature.margin")
    if margin is not None and latest.get(gpu, "gpu.busy"):
        yield "gpu.temperature.busy_margin", margin


def _memory_margin(latest: LatestReadings, gpu: str) -> Values:
    """`gpu.memory.temperature_margin`: degrees to the limit of the GPU's memory."""
    celsius = _number(latest, gpu, "gpu.memory.temperature")
    highest = _number(latest, gpu, "gpu.memory.temperature_max")
    if celsius is not None and highest:
        yield "gpu.memory.temperature_margin", highest - celsius


def _number(latest: LatestReadings, gpu: str, signal: str) -> float | None:
    value = latest.get(gpu, signal)
    return None if value is None or isinstance(value, (bool, str)) else value


DERIVATIONS = (
    Derivation("gpu", ("gpu.temperature.margin",), _margin),
    Derivation("gpu", ("gpu.temperature.busy_margin",), _busy_margin),
    Derivation("gpu", ("gpu.memory.temperature_margin",), _memory_margin),
)
