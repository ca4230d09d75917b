"""Masks of a recording: files and log records on what users run, which a recording never holds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

# /proc/PID/…, /proc/PID/task/TID/… and the kernel's own command line. A read of them can also block on a
# stuck process (Linux fs/proc/base.c takes the process's memory lock).
_PRIVATE_FILE = re.compile(r"/proc/(?:cmdline|(?:[^/]+/)+(?:cmdline|environ|maps|smaps|auxv))")
_AUDIT = re.compile(r"audit:|type=\d+ audit\(")
_COMMAND_LINE = re.compile(r"command line\b", re.IGNORECASE)
# Linux init/main.c prints the first process's arguments and environment, one record each, after these heads.
_INIT_HEAD = re.compile(r"\s*with (?:arguments|environment):")
_INIT_ITEM = "    "
# NVRM: Xid (PCI:0000:3b:00): 48, pid=91237, name=python3, Ch 00000010
_PROCESS_NAME = re.compile(r"(\bpid=[^,;\n]*, *name=)(?:(?!\\x0a)[^,\n])*")
# NVRM: API mismatch: the client 'nvidia-smi' (pid 1234)
_CLIENT_NAME = re.compile(r"(\bthe client )'?[^\n]*?'?(?= \(pid )")
_MASKED = r"\1<masked>"


def is_private(path: str) -> bool:
    """Return whether a file of the machine must never be recorded."""
    return _PRIVATE_FILE.fullmatch(path) is not None


def public_records(records: Iterable[str]) -> Iterator[str]:
    """Yield the kernel log records that may be recorded, with process names in driver messages masked.

    Left out are records of other facilities than the kernel's, audit records, command lines and environments.
    records: in the form of /dev/kmsg, in their order.
    """
    of_init = False
    for record in records:
        head, _, text = record.partition(";")
        prefix = head.partition(",")[0]
        if not (prefix.isascii() and prefix.isdigit()) or int(prefix) >> 3 != 0:
            continue
        of_init = _INIT_HEAD.match(text) is not None or (of_init and text.startswith(_INIT_ITEM))
        if of_init or _AUDIT.match(text) or _COMMAND_LINE.search(text):
            continue
        yield _CLIENT_NAME.sub(_MASKED, _PROCESS_NAME.sub(_MASKED, record))
