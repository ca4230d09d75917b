"""A moment on one machine.

Time is always an argument: nothing below the input and output layers reads a clock.
"""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct


class Instant(Struct, frozen=True):
    """One moment on one machine.

    wall: seconds since the epoch, UTC; may jump.
    mono: seconds since the machine booted, the clock of the kernel log; never jumps within a boot.
    boot_id: names the boot to which mono belongs.
    """

    wall: float
    mono: float
    boot_id: str

    def wall_of(self, mono: float) -> float:
        """Seconds since the epoch of an earlier moment of this boot, as this clock sees it."""
        return self.wall - (self.mono - mono)


# Moments that a broken clock may claim and no calendar has are written as the nearest that one has.
_EARLIEST, _LATEST = 0.0, 253_402_300_799.0

_DAY = 86_400
_MONTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def rfc3339(wall: float) -> str:
    """A moment, seconds since the epoch, in UTC to the second: `2026-11-21T09:12:33Z`."""
    days, second = divmod(int(min(max(wall, _EARLIEST), _LATEST)), _DAY)
    year = 1970 + days // 366
    while _new_year(year + 1) <= days:
        year += 1
    days -= _new_year(year)
    leap = _new_year(year + 1) - _new_year(year) - 365
    for month, ordinary in enumerate(_MONTHS, 1):
        length = ordinary + (leap if month == 2 else 0)
        if days < length:
            break
        days -= length
    minute, second = divmod(second, 60)
    hour, minute = divmod(minute, 60)
    return f"{year:04}-{month:02}-{days + 1:02}T{hour:02}:{minute:02}:{second:02}Z"


def _new_year(year: int) -> int:
    """Days from the epoch to the first day of a year."""
    past = year - 1
    return 365 * (year - 1970) + past // 4 - past // 100 + past // 400 - 477


def parse_or_zero(text: str) -> float:
    """A moment as text in seconds since the epoch; 0 for what is none."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return 0.0
    return moment.timestamp() if moment.tzinfo is not None else 0.0
