"""adjtimex of this machine, read only. Source: Linux include/uapi/linux/timex.h, adjtimex(2)."""

from __future__ import annotations

import ctypes
import os

_NANOSECONDS = 0x2000  # STA_NANO: the offset counts nanoseconds


class _Timex(ctypes.Structure):
    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("constant", ctypes.c_long),
        ("precision", ctypes.c_long),
        ("tolerance", ctypes.c_long),
        ("time", ctypes.c_long * 2),
        ("tick", ctypes.c_long),
        ("rest", ctypes.c_byte * 128),
    )


def adjtimex() -> dict[str, int]:
    """Return the kernel's clock state: status bits, offset and errors in microseconds, state (5 is an error).

    Raises OSError.
    """
    timex = _Timex()
    state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(timex))
    if state < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "adjtimex")
    return {
        "status": timex.status,
        "offset_us": timex.offset // 1000 if timex.status & _NANOSECONDS else timex.offset,
        "maxerror_us": timex.maxerror,
        "esterror_us": timex.esterror,
        "state": state,
    }
