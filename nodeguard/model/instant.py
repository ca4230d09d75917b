"""Points in time on one machine, and their text as RFC 3339 timestamps.

Time is always an argument: only the input and output layers read a clock.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

from msgspec import Struct


class Instant(Struct, frozen=True):
    """One point in time on one machine.

    wall: seconds since the epoch, UTC; may jump.
    mono: seconds since the machine booted, the clock of the kernel log; never jumps within a boot.
    boot_id: the boot to which mono belongs.
    """

    wall: float
    mono: float
    boot_id: str

    def wall_of(self, mono: float) -> float:
        """Return a time of this boot in seconds since the epoch, as this clock sees it."""
        return self.wall - (self.mono - mono)

    def mono_of(self, wall: float) -> float:
        """Return a time in seconds since the epoch, as this clock sees it, in seconds of `mono`."""
        return self.mono - (self.wall - wall)


# A broken clock may show times that no calendar has. The text is then the nearest time that a calendar has.
_EARLIEST, _LATEST = 0.0, 253_402_300_799.0

_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:\.\d+)?(?:[Zz]|[-+]\d\d:\d\d)", re.ASCII)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_HTTP_DATE = re.compile(
    r"(?:[A-Z][a-z]{2}, )?(\d{1,2}) ([A-Z][a-z]{2}) (\d{4}) (\d\d):(\d\d):(\d\d) GMT", re.ASCII
)


class Timestamp(float):
    """A time in seconds since the epoch, which is RFC 3339 in JSON."""

    def as_json(self) -> str:
        """Return the value in JSON."""
        return rfc3339(self)


def rfc3339(wall: float) -> str:
    """Return a time, in seconds since the epoch, as UTC to the second: `2026-11-21T09:12:33Z`."""
    time = datetime.fromtimestamp(int(min(max(wall, _EARLIEST), _LATEST)), UTC)
    return f"{time.replace(tzinfo=None).isoformat()}Z"


def precise_rfc3339(wall: float) -> str:
    """Return a time, in seconds since the epoch, as UTC to the microsecond."""
    return f"{datetime.fromtimestamp(wall, UTC).replace(tzinfo=None).isoformat()}Z"


def parse_rfc3339(text: object) -> float:
    """Return an RFC 3339 timestamp in seconds since the epoch. Raises ValueError for anything else."""
    if not isinstance(text, str) or not _RFC3339.fullmatch(text):
        raise ValueError(text)
    return datetime.fromisoformat(text.upper()).timestamp()


def parse_or_zero(text: str) -> float:
    """Return an RFC 3339 timestamp in seconds since the epoch; 0 for anything else."""
    try:
        return parse_rfc3339(text)
    except ValueError:
        return 0.0


def parse_http_date(text: str) -> float:
    """Return an HTTP date, `Mon, 19 Sep 2026 18:29:47 GMT`, weekday optional, in seconds since the epoch.

    Raises ValueError.
    """
    match = _HTTP_DATE.fullmatch(text)
    if match is None:
        raise ValueError(text)
    day, month, year, hour, minute, second = match.groups()
    number = _MONTHS.index(month) + 1
    date = datetime(int(year), number, int(day), int(hour), int(minute), int(second), tzinfo=UTC)
    return date.timestamp()
