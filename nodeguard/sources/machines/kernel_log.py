"""KernelLog: reads new records of /dev/kmsg, from its beginning or from a cursor.

Source: dev-kmsg ABI of Linux.
"""

from __future__ import annotations

import math
import os
import time

from nodeguard.sources.machine import LogCursor, LogRecords

# Bytes of the longest record (CONSOLE_EXT_LOG_MAX); one read returns one record.
_RECORD = 16_384

# Records of one reading, more than any ring buffer holds: a flood of records must not fill the memory.
_MAX_RECORDS = 500_000
# Records between two reads of the clock.
_TIME_CHECK = 500


class KernelLog:
    """An open kernel log. Raises OSError if access is denied.

    A gap in the sequence numbers counts as lost records. Records that were overwritten before the first
    reading do not count.

    after: sequence number of the last record of this boot that was read before, for example by this agent
    before a restart; -1 if none was. It and earlier records are not returned again.
    """

    def __init__(self, path: str, after: int = -1) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._after = self._last = after

    def fileno(self) -> int:
        """Return a descriptor that is readable when there are unread records."""
        return self._descriptor

    def read(self, within: float = math.inf) -> LogRecords:
        """Return the unread records, within seconds; see LogRecords.more."""
        records: list[str] = []
        lost = 0
        until = time.monotonic() + within
        while True:
            if len(records) == _MAX_RECORDS or (len(records) % _TIME_CHECK == 0 and time.monotonic() > until):
                return LogRecords(tuple(records), lost, more=True, last=self._last)
            try:
                raw = os.read(self._descriptor, _RECORD)
            except BlockingIOError:
                break
            except BrokenPipeError:
                continue  # overwritten; the next sequence number shows how many
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
        """Close the log."""
        os.close(self._descriptor)


def sequence_number(record: str) -> int:
    """Return the sequence number of a record, -1 if it has none."""
    number = record.split(",", 2)[1] if "," in record else ""
    return int(number) if number.isascii() and number.isdigit() else -1


def last_sequence(cursor: LogCursor | None, boot_id: str) -> int:
    """Return the last sequence number of a cursor; -1, to read all, if the cursor is of another boot."""
    return cursor.sequence if cursor is not None and cursor.boot_id == boot_id else -1
