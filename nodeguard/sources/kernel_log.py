"""/dev/kmsg of this machine, read from its beginning on and then what is new.

Source: dev-kmsg ABI of Linux.
"""

from __future__ import annotations

import math
import os
import time

from nodeguard.sources.machine import Log

# No record is longer (CONSOLE_EXT_LOG_MAX); one read gives one record.
_RECORD = 16_384

# Records of one reading, more than any ring holds that a kernel is given: a flood that outruns its reader
# must not fill the memory.
_MOST = 500_000
# Records between two looks at the time.
_STRETCH = 500


class KernelLog:
    """An open kernel log. Raises OSError where it may not be read.

    A gap in the sequence numbers is told as lost. What the ring had overwritten before the first reading is
    not: nobody was there to read it.
    """

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._last = -1

    def fileno(self) -> int:
        """Readable when there are records that were not read."""
        return self._descriptor

    def read(self, within: float = math.inf) -> Log:
        """Records that were not read before, to the log's end or for so many seconds; see Log.more."""
        records: list[str] = []
        lost = 0
        until = time.monotonic() + within
        while True:
            if len(records) == _MOST or (len(records) % _STRETCH == 0 and time.monotonic() > until):
                return Log(tuple(records), lost, more=True)
            try:
                raw = os.read(self._descriptor, _RECORD)
            except BlockingIOError:
                break
            except BrokenPipeError:
                continue  # the next record was overwritten; the one after it shows how many are missing
            if not raw:
                break
            record = raw.decode(errors="replace")
            lost += self._gap(record)
            records.append(record)
        return Log(tuple(records), lost)

    def _gap(self, record: str) -> int:
        number = record.split(",", 2)[1] if "," in record else ""
        if not number.isdigit():
            return 0
        before, self._last = self._last, int(number)
        return max(0, self._last - before - 1) if before >= 0 else 0

    def close(self) -> None:
        """Close it."""
        os.close(self._descriptor)
