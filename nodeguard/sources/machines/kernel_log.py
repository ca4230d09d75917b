"""/dev/kmsg of this machine, read from its beginning or a cursor on and then what is new.

Source: dev-kmsg ABI of Linux.
"""

from __future__ import annotations

import math
import os
import time

from nodeguard.sources.machine import LogCursor, LogRecords

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

    after: sequence number of the last record of this boot that was read by somebody else, such as this agent
    before it was restarted; -1 where none was. It and those before it are not given again.
    """

    def __init__(self, path: str, after: int = -1) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._after = self._last = after

    def fileno(self) -> int:
        """Readable when there are records that were not read."""
        return self._descriptor

    def read(self, within: float = math.inf) -> LogRecords:
        """Records that were not read before, to the log's end or for so many seconds; see Log.more."""
        records: list[str] = []
        lost = 0
        until = time.monotonic() + within
        while True:
            if len(records) == _MOST or (len(records) % _STRETCH == 0 and time.monotonic() > until):
                return LogRecords(tuple(records), lost, more=True, last=self._last)
            try:
                raw = os.read(self._descriptor, _RECORD)
            except BlockingIOError:
                break
            except BrokenPipeError:
                continue  # the next record was overwritten; the one after it shows how many are missing
            if not raw:
                break
            record = raw.decode(errors="replace")
            number = sequence_number(record)
            if 0 <= number <= self._after:
                continue
            lost += self._gap(number)
            records.append(record)
        return LogRecords(tuple(records), lost, last=self._last)

    def _gap(self, number: int) -> int:
        if number < 0:
            return 0
        before, self._last = self._last, number
        return max(0, self._last - before - 1) if before >= 0 else 0

    def close(self) -> None:
        """Close it."""
        os.close(self._descriptor)


def sequence_number(record: str) -> int:
    """A record's sequence number, -1 where it has none."""
    number = record.split(",", 2)[1] if "," in record else ""
    return int(number) if number.isascii() and number.isdigit() else -1


def last_sequence(cursor: LogCursor | None, boot_id: str) -> int:
    """The sequence number after which a boot's log is to be read, -1 for all of it: another boot's log is
    another log.
    """
    return cursor.sequence if cursor is not None and cursor.boot_id == boot_id else -1
