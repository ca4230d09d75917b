"""Temperature of the transceiver of an adapter, from the sensors that its driver has in hwmon."""

from __future__ import annotations

import re

from nodeguard.model.signal import Signal
from nodeguard.sources.readings import ObservationDraft, errno_name, failure_reason, read_text

TEMPERATURE = Signal("port.module.temperature", "gauge", "temperature of the transceiver", "celsius")
LIMIT = Signal(
    "port.module.temperature_limit", "state", "temperature at which it raises its alarm", "celsius"
)

# mlx5 gives a sensor the name that its firmware has for it; without one, numbers from 64 on are modules.
# Source: Linux drivers/net/ethernet/mellanox/mlx5/core/hwmon.c, from 6.7 on.
_MODULE = re.compile(r"[Mm]odule.*|sensor(6[4-9]|[7-9]\d|1\d\d)")
_LABEL = re.compile(r"(temp\d+)_label")

# Degrees Celsius. A module of the commercial range works up to 70. Source: SFF-8636, case temperature.
_LOWEST_LIMIT = 40.0

# The group of these readings in the refusals of a device.
_GROUP = "hwmon"


def read_transceiver(draft: ObservationDraft, device: str, refused: dict[str, str]) -> None:
    """Read the temperature of the transceiver and its limit, if the device below this path has the sensor.

    refused: name of the error by group. Each reading is a command to the firmware, and the driver logs each
    that fails: after the first failure the sensor is not read again.
    """
    for name in draft.list_names(f"{device}/hwmon") or ():
        directory = f"{device}/hwmon/{name}"
        for file in draft.list_names(directory) or ():
            label = _LABEL.fullmatch(file)
            if label and _MODULE.fullmatch(draft.read_text(f"{directory}/{file}") or ""):
                _read_sensor(draft, f"{directory}/{label[1]}", refused)
                return


def _read_sensor(draft: ObservationDraft, sensor: str, refused: dict[str, str]) -> None:
    for signal, path, convert in (
        (TEMPERATURE.name, f"{sensor}_input", _celsius),
        (LIMIT.name, f"{sensor}_crit", _limit),
    ):
        text = None if _GROUP in refused else read_text(draft.machine, path)
        if isinstance(text, OSError):
            refused[_GROUP] = errno_name(text)
            draft.mark_unread(failure_reason(text), signal)
        elif _GROUP in refused:
            draft.mark_unread(f"refused once ({refused[_GROUP]}): not read again", signal)
        elif text is not None:
            draft.parse(signal, path, text.strip(), convert)


def _celsius(text: str) -> float | None:
    """Return degrees of millidegrees; None for 0, a module without a sensor. Raises ValueError."""
    degrees = int(text) / 1000
    if not -50 <= degrees <= 150:
        raise ValueError(text)
    return degrees or None


def _limit(text: str) -> float | None:
    """Return a limit in degrees. Raises ValueError for one that no module has."""
    degrees = _celsius(text)
    if degrees is not None and degrees < _LOWEST_LIMIT:
        raise ValueError(text)
    return degrees
