"""kmsg: records of the kernel log, in the form of /dev/kmsg (Linux Documentation/ABI/testing/dev-kmsg)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import Struct

from nodeguard.bundle.failures import BundleError

# Path of the log on a machine; under this path errors.yaml has the failure of its read.
KMSG = "/dev/kmsg"

# `prefix,sequence,microseconds,flags[,more];text`, then continuation lines, which begin with a space.
_RECORD = re.compile(r"\d+,\d+,\d+,[^;\n]*;[^\n]*(?:\n [^\n]*)*", re.ASCII)

_PROBLEM = "is not a record of /dev/kmsg"
_REMEDY = "write it like 6,1024,5000000,-;text, a continuation with a space before it"


class LogLines(Struct, frozen=True):
    """Records of a growing log, without invalid lines. defect: the first of these."""

    records: tuple[str, ...] = ()
    defect: BundleError | None = None


def is_record(text: str) -> bool:
    """Return whether a text is one record, without its last newline."""
    return _RECORD.fullmatch(text) is not None


def read_records(data: bytes, file: str) -> tuple[str, ...]:
    """Return the records of a kmsg file in their order, each without its last newline.

    Invalid UTF-8 becomes U+FFFD. Raises BundleError with the line of an invalid record.
    """
    text = data.decode(errors="replace").removesuffix("\n")
    records = []
    at = 0
    while at < len(text):
        match = _RECORD.match(text, at)
        if match is None or text[match.end() : match.end() + 1] not in ("", "\n"):
            line = text.count("\n", 0, at) + 1
            raise BundleError(file, f"line {line}", _PROBLEM, _REMEDY)
        records.append(match[0])
        at = match.end() + 1
    return tuple(records)


def parse_lines(lines: Iterable[bytes], file: str, first: int) -> LogLines:
    """Return the records among new lines of a growing log; invalid lines are left out and reported.

    lines: without their newlines. file, first: the log's path and the number of the first line, for the
    message. A continuation belongs to the record before it, if that is among the lines; empty lines are
    skipped.
    """
    records: list[str] = []
    defect: BundleError | None = None
    for number, raw in enumerate(lines, first):
        line = raw.decode(errors="replace")
        if line.startswith(" "):
            if records:
                records[-1] += f"\n{line}"
        elif is_record(line):
            records.append(line)
        elif line:
            defect = defect or BundleError(file, f"line {number}", _PROBLEM, _REMEDY)
    return LogLines(tuple(records), defect)
