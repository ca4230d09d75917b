"""Field types of the policy file: amounts, names and patterns, with their syntax and units."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta

from nodeguard.config import units

# A plain `$` also matches before a final newline.
_END = r"$(?!\n)"
Share = Annotated[str, Meta(pattern=rf"^[0-9]{{1,3}}(\.[0-9]{{1,4}})?%{_END}", examples=["5%", "2.5%"])]
Duration = Annotated[str, Meta(pattern=rf"^[1-9][0-9]{{0,6}}[smhd]{_END}", examples=["30s", "10m", "8h"])]
# `0s` is allowed: some faults must be marked within half a second.
GraceDuration = Annotated[
    str, Meta(pattern=rf"^(0s|[1-9][0-9]{{0,6}}[smhd]){_END}", examples=["5s", "1m", "0s"])
]
Name = Annotated[
    str, Meta(pattern=rf"^[a-z0-9]+(-[a-z0-9]+)*{_END}", max_length=63, examples=["training", "pool-1"])
]
CheckPattern = Annotated[
    str, Meta(pattern=rf"^[a-z0-9*?!\[\]-]+{_END}", max_length=100, examples=["gpu-*", "gpu-lost"])
]
NodePattern = Annotated[
    str, Meta(pattern=rf"^[a-z0-9*?!\[\].-]+{_END}", max_length=253, examples=["gpu-7", "rack-12-*"])
]
LabelKey = Annotated[
    str,
    Meta(
        pattern=rf"^([a-z0-9]([a-z0-9.-]{{0,251}}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{{0,61}}[A-Za-z0-9])?{_END}",
        max_length=317,
        examples=["topology.kubernetes.io/zone", "rack"],
    ),
]
Count = Annotated[int, Meta(ge=1, le=100_000)]
Text = Annotated[str, Meta(max_length=500)]
Checks = Annotated[tuple[CheckPattern, ...], Meta(min_length=1, max_length=200)]
# The marks that findings request: model.mark.FINDING_MARKS.
Marks = Annotated[tuple[Literal["quarantine", "suspect"], ...], Meta(min_length=1, max_length=2)]
Labels = Annotated[dict[str, str], Meta(max_length=20)]
Timestamp = Annotated[datetime, Meta(tz=True, examples=["2027-01-31T18:00:00Z", "2027-01-31T18:00:00+01:00"])]
LabelKeys = Annotated[tuple[LabelKey, ...], Meta(min_length=1, max_length=10)]
_STEP = "[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
DomainPath = Annotated[
    str, Meta(pattern=rf"^{_STEP}(/{_STEP}){{0,9}}{_END}", max_length=253, examples=["row-1/r12", "feed-a"])
]
TableFile = Annotated[
    str, Meta(pattern=rf"^[^\x00-\x1f]+{_END}", min_length=1, max_length=255, examples=["racks.csv"])
]


_UNITS = ((86_400, "d"), (3600, "h"), (60, "m"), (1, "s"))

# Seconds. A longer duration is probably in a wrong unit.
MAX_DURATION = 365 * 86_400.0


def parse_share(text: str) -> float:
    """Return a percentage as a share: `5%` → 0.05. Raises ValueError."""
    return float(text.removesuffix("%")) / 100


def format_share(value: float) -> str:
    """Return a share as a percentage: 0.05 → `5%`."""
    return f"{round(value * 100, 4):g}%"


def parse_duration(text: str) -> float:
    """Return the seconds of `30s`, `10m`, `8h` or `1d`, up to a year, and of `0s`. Raises ValueError."""
    duration = 0.0 if text == "0s" else units.parse_duration(text)
    if duration > MAX_DURATION:
        raise ValueError(text)
    return duration


def format_duration(value: float) -> str:
    """Return whole seconds as a duration in the largest unit that leaves no remainder: 600.0 → `10m`."""
    size, unit = next((size, unit) for size, unit in _UNITS if value % size == 0)
    return f"{value // size:.0f}{unit}"
