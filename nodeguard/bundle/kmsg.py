"""kmsg: records of the kernel log, as /dev/kmsg gives them (Linux Documentation/ABI/testing/dev-kmsg)."""

from __future__ import annotations

import re

from nodeguard.bundle.defect import BundleError

# Where the log is on a machine: under this path errors.yaml tells how reading it fails.
KMSG = "/dev/kmsg"

# `prefix,sequence,microseconds,flags[,more];text`, then continuation lines, which a space begins.
_RECORD = re.compile(r"\d+,\d+,\d+,[^;\n]*;[^\n]*(?:\n [^\n]*)*", re.ASCII)


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
            remedy = "write it like 6,1024,5000000,-;text, a continuation with a space before it"
            raise BundleError(file, f"line {line}", "is no record of /dev/kmsg", remedy)
        records.append(found[0])
        at = found.end() + 1
    return tuple(records)
