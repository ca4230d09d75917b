"""A moment on one machine.

Time is always an argument: nothing below the input and output layers reads a clock.
"""

from __future__ import annotations

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
