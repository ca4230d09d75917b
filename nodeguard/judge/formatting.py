"""Values, lengths of time and sentences as a person reads them. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

_PLACE = re.compile(r"\{([a-z0-9_.~-]+)\}")
_SIZES = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_SYMBOLS = {"celsius": "°C", "watts": "W", "bytes": "B"}


def format_value(value: object, unit: str = "") -> str:
    """A value in its unit (see model.signal.Signal): no trailing zeros, truths as yes and no, a ratio in per
    cent.
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(format_value(part, unit) for part in value)
    if not unit or not isinstance(value, (int, float)):
        return _number(value) if isinstance(value, float) else str(value)
    if unit == "seconds":
        return format_duration(value)
    if unit == "ratio":
        return f"{_number(value * 100.0)} %"
    if unit == "bytes":
        for size, name in _SIZES:
            if abs(value) >= size:
                return f"{_number(value / size)} {name}"
    return f"{_number(value)} {_SYMBOLS.get(unit, unit)}"


def _number(value: float) -> str:
    return f"{value:.4g}" if abs(value) < 1e4 else f"{value:.0f}"


def format_duration(seconds: float) -> str:
    """A length of time in its two largest units: `40 d 3 h`, `2 min 5 s`, `0.4 s`."""
    if seconds < 10:
        return f"{seconds:.2g} s"
    units = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
    rest, said = int(seconds), []
    for size, name in units:
        if rest >= size:
            said.append(f"{rest // size} {name}")
            rest %= size
        elif said:
            break
    return " ".join(said[:2])


def fill_template(template: str, values: Mapping[str, object], units: Mapping[str, str]) -> str:
    """A sentence with `{signal}` replaced by its value; one that is not known reads as `?`.

    units: by signal.
    """

    def told(place: re.Match[str]) -> str:
        name = place[1]
        return format_value(values.get(name, "?"), unit_of(name, units))

    return _PLACE.sub(told, template)


def unit_of(name: str, units: Mapping[str, str]) -> str:
    """The unit of a signal, or of what a signal is held against: `gpu.power.limit~peers` is in watts, too."""
    return units.get(name.partition("~")[0], "")
