"""Types of fields of files, such as amounts with a unit, `10m` and `5%`, which config.amounts decodes."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

# A plain `$` also matches before a final newline.
END = r"$(?!\n)"


def _amount(unit: str, pattern: str, *examples: str) -> Meta:
    """Return the metadata of a field: its unit, and its text in a file. pattern: empty for any text."""
    keywords = {"examples": [*examples]} | ({"pattern": pattern + END} if pattern else {})
    return Meta(extra={"unit": unit}, extra_json_schema=keywords)


_SHARE = r"^[0-9]{1,3}(\.[0-9]{1,4})?%"

# Seconds.
Duration = Annotated[float, _amount("duration", r"^[1-9][0-9]{0,6}[smhd]", "30s", "10m", "8h")]
# `0s` is allowed: some faults must be marked within half a second.
GraceDuration = Annotated[float, _amount("duration", r"^(0s|[1-9][0-9]{0,6}[smhd])", "5s", "1m", "0s")]

# At most 90 days.
Window = Annotated[float, _amount("window", "", "30s", "5m", "24h", "7d")]

# Seconds since the epoch, written as RFC 3339.
Time = Annotated[float, _amount("time", "", "2026-11-01T12:00:00Z")]
# Text of one line.
Line = Annotated[str, _amount("line", "", "'gpu-17'")]

# A part of a whole, above 0 and at most 1: of the nodes that may be marked, of other nodes, and of a budget
# that is reserved, from 0 to less than 1.
Share = Annotated[float, _amount("share", _SHARE, "5%", "2.5%")]
StaleShare = Annotated[float, _amount("stale share", _SHARE, "5%", "2.5%")]
ReservedShare = Annotated[float, _amount("reserved share", _SHARE, "5%", "2.5%")]


def identifier(*examples: str) -> Meta:
    """Return the metadata of a name of a check, a fault class or a pool. A Kubernetes label can have it."""
    return Meta(
        pattern=rf"^[a-z0-9]+(-[a-z0-9]+)*{END}",
        max_length=63,
        description="lower-case letters and digits, with single hyphens between them, at most 63 characters",
        examples=[*examples],
    )


Count = Annotated[int, Meta(ge=1, le=100_000)]
CheckPattern = Annotated[
    str, Meta(pattern=rf"^[a-z0-9*?!\[\]-]+{END}", max_length=100, examples=["gpu-*", "gpu-lost"])
]
CheckPatterns = Annotated[tuple[CheckPattern, ...], Meta(min_length=1, max_length=200)]
