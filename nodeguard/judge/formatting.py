"""Text for values, durations and message templates. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from nodeguard.model.check import Check

_PLACEHOLDER = re.compile(r"\{([a-z0-9_.~-]+)\}")
_SIZES = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_SYMBOLS = {"celsius": "°C", "watts": "W", "bytes": "B"}


def format_value(value: object, unit: str = "") -> str:
    """Return a value with its unit (see model.signal.Signal).

    Numbers have no trailing zeros, booleans are yes and no, a ratio is a percentage.
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(format_value(item, unit) for item in value)
    if not unit or not isinstance(value, (int, float)):
        return _format_number(value) if isinstance(value, float) else str(value)
    if unit == "seconds":
        return format_duration(value)
    if unit == "ratio":
        return f"{_format_number(value * 100.0)} %"
    if unit == "bytes":
        for size, name in _SIZES:
            if abs(value) >= size:
                return f"{_format_number(value / size)} {name}"
    return f"{_format_number(value)} {_SYMBOLS.get(unit, unit)}"


def _format_number(value: float) -> str:
    return f"{value:.4g}" if abs(value) < 1e4 else f"{value:.0f}"


def format_duration(seconds: float) -> str:
    """Return a duration in its two largest units: `40 d 3 h`, `2 min 5 s`, `0.4 s`."""
    if seconds < 10:
        return f"{seconds:.2g} s"
    units = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
    rest, parts = int(seconds), []
    for size, name in units:
        if rest >= size:
            parts.append(f"{rest // size} {name}")
            rest %= size
        elif parts:
            break
    return " ".join(parts[:2])


def fill_template(template: str, values: Mapping[str, object], units: Mapping[str, str]) -> str:
    """Return a message with `{signal}` replaced by its value, or by `?` without one. units: by signal."""

    def replacement(placeholder: re.Match[str]) -> str:
        name = placeholder[1]
        return format_value(values.get(name, "?"), unit_of(name, units))

    return _PLACEHOLDER.sub(replacement, template)


def general_remedy(check: Check) -> str:
    """Return the remedy of a check without a finding: a value is a name to fill in, as in `xid XID`."""
    return fill_template(check.remedy, general_values(check), {})


def general_values(check: Check) -> dict[str, str]:
    """Return a value for each placeholder of a check's remedy: the name of the value, such as `XID`."""
    names = {name: name.rpartition(".")[2].upper() for name in placeholders(check.remedy)}
    return names | {"action": check.action.phrase}


def placeholders(template: str) -> list[str]:
    """Return the names of the values that a message needs, in their order."""
    return _PLACEHOLDER.findall(template)


def unit_of(name: str, units: Mapping[str, str]) -> str:
    """Return the unit of a signal or of its reference: `gpu.power.limit~peers` is in watts as well."""
    return units.get(name.partition("~")[0], "")
