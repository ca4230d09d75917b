"""Moments as clouds write them. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_HTTP = re.compile(
    r"(?:[A-Z][a-z]{2}, )?(\d{1,2}) ([A-Z][a-z]{2}) (\d{4}) (\d\d):(\d\d):(\d\d) GMT", re.ASCII
)
_ISO = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)", re.ASCII
)  # RFC 3339, always with its zone


def moment(value: object) -> tuple[float | None, str]:
    """Seconds since the epoch of a moment, and what makes no sense of it.

    `Mon, 19 Sep 2026 18:29:47 GMT` (Azure), `21 Sep 2026 09:00:43 GMT` (AWS), `2026-09-18T08:22:00Z`; of what
    is not there, (None, ""); of anything else, None and its text.
    """
    if value is None or value == "":
        return None, ""
    text = str(value).strip()
    try:
        return _parsed(text), ""
    except (ValueError, OverflowError):
        return None, text[:60]


def _parsed(text: str) -> float:
    found = _HTTP.fullmatch(text)
    if found:
        day, month, year, *clock = found.groups()
        hour, minute, second = map(int, clock)
        number = _MONTHS.index(month) + 1
        return datetime(int(year), number, int(day), hour, minute, second, tzinfo=UTC).timestamp()
    if _ISO.fullmatch(text):
        return datetime.fromisoformat(text).timestamp()
    raise ValueError(text)
