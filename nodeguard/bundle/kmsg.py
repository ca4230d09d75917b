"""kmsg: records of the kernel log, as /dev/kmsg gives them (Linux Documentation/ABI/testing/dev-kmsg)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import Struct

from nodeguard.bundle.defect import BundleError

# Where the log is on a machine: under this path errors.yaml tells how reading it fails.
KMSG = "/dev/kmsg"

# `prefix,sequence,microseconds,flags[,more];text`, then continuation lines, which a space begins.
_RECORD = re.compile(r"\d+,\d+,\d+,[^;\n]*;[^\n]*(?:\n [^\n]*)*", re.ASCII)

_PROBLEM = "is no record of /dev/kmsg"
_REMEDY = "write it like 6,1024,5000000,-;text, a continuation with a space before it"


class LogLines(Struct, frozen=True):
    """Lines of a log that goes on. left_out: how many are no records; defect: the first of them."""

    records: tuple[str, ...] = ()
    left_out: int = 0
    defect: BundleError | None = None


def is_record(text: str) -> bool:
    """Whether a text is one record, without its last newline."""
    return _RECORD.fullmatch(text) is not None


def read_records(data: bytes, file: str) -> tuple[str, ...]:
    """Records of a kmsg file in their order, each without its last newline.

    Bytes that are no UTF-8 become U+FFFD. Raises BundleError with the line where something is no record.
    """
    text = data.decode(errors="replace").removesuffix("\n")
    records = []
    at = 0
    while at < len(text):
        found = _RECORD.match(text, at)
        if found is None or text[found.end() : found.end() + 1] not in ("", "\n"):
            line = text.count("\n", 0, at) + 1
            raise BundleError(file, f"line {line}", _PROBLEM, _REMEDY)
        records.append(found[0])
        at = found.end() + 1
    return tuple(records)


def parse_lines(lines: Iterable[bytes], file: str, first: int) -> LogLines:
    """Records among the lines of a log that is being written; what is none is left out and told.

    lines: without their newlines. file, first: the log's path and the number of the first line, for the
    message. A continuation belongs to the record before it, where that is among the lines; an empty line says
    nothing.
    """
    records: list[str] = []
    defects: list[int] = []
    for number, raw in enumerate(lines, first):
        line = raw.decode(errors="replace")
        if line.startswith(" "):
            if records:
                records[-1] += f"\n{line}"
        elif is_record(line):
            records.append(line)
        elif line:
            defects.append(number)
    defect = BundleError(file, f"line {defects[0]}", _PROBLEM, _REMEDY) if defects else None
    return LogLines(tuple(records), len(defects), defect)
