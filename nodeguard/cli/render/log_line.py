"""Explanations of lines of the kernel log, as dmesg, journalctl and /dev/kmsg print them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from nodeguard.cli.render.xid import CodeOutput, sxid_output, xid_output
from nodeguard.fleet_api.text.check import check_list, explanation
from nodeguard.fleet_api.view import Field, Note, Row, View
from nodeguard.model.catalogue import Catalogue, LogPattern
from nodeguard.model.check import SIGN_EVENTS, EventOccurred

# What stands before the text of the kernel: fields of /dev/kmsg, a header of syslog, and of dmesg times with
# facility and level.
_PREFIX = re.compile(
    r"(?:.{0,200}?\bkernel: |<\d+>|\d+,\d+,\d+,[^;]*;|kern *:[a-z]+ *: )?"
    r"(?:\d{4}-\d\d-\d\dT[\d:,.+-]+ )?(?:\[[\w :.,+-]+\] *){0,2}"
)

# Events of lines with a code, by the name of the table of the codes and of the group of the pattern.
_CODES = {"gpu.xid.line": "xid", "nvswitch.sxid.line": "sxid"}

_MEANINGLESS = "The line shows no fault by itself. nodeguard reads faults from other lines."
_UNUSED = "No check fires on its event, {}. Most such events report a recovery, a start or a reset."


class LogLineOutput(Struct, frozen=True):
    """Output of nodeguard explain LINE -o json, for a line without a code.

    line: without the prefix of the log. event: signal of the event that the line becomes, empty where it
    means nothing by itself. description: meaning. checks: those that count the event.
    """

    line: str
    event: str
    description: str
    checks: tuple[str, ...] = ()
    kind: Literal["log-line"] = "log-line"


def explain_log_line(catalogue: Catalogue, text: str) -> CodeOutput | LogLineOutput | None:
    """Return the facts on the first line of a text that means something to nodeguard; None for none.

    text: one or more lines of the kernel log, with or without the prefix that a log puts before them. Raises
    UsageError for a code that is too long.
    """
    meaningless: LogLineOutput | None = None
    # Few records have several lines, so the whole text comes first.
    for line in (text, *text.splitlines()):
        if (found := _pattern(catalogue, line.strip())) is None:
            continue
        pattern, match = found
        if (table := _CODES.get(pattern.signal)) is not None:
            output = xid_output if table == "xid" else sxid_output
            return output(catalogue, match[table])
        facts = LogLineOutput(
            match.string, pattern.signal, pattern.description, tuple(_checks(catalogue, pattern, match))
        )
        if pattern.signal:
            return facts
        meaningless = meaningless or facts
    return meaningless


def log_line_view(catalogue: Catalogue, output: LogLineOutput) -> View:
    """Return the explanation of a line without a code."""
    rows: list[Row] = [Field("line", output.line)]
    if output.checks:
        rows.extend(check_list(catalogue, output.checks))
    else:
        rows.append(Note(_UNUSED.format(output.event) if output.event else _MEANINGLESS))
    return explanation("Kernel log", output.description, rows)


def _pattern(catalogue: Catalogue, line: str) -> tuple[LogPattern, re.Match[str]] | None:
    """Return the first pattern that matches a line, with and without the prefix of a log, and of the driver
    before an Xid, which dashboards and people leave out.
    """
    prefix = _PREFIX.match(line)
    for text in dict.fromkeys((line, line[prefix.end() :] if prefix else line, f"NVRM: {line}")):
        for pattern in catalogue.patterns:
            if pattern.hint in text and (match := re.match(pattern.pattern, text)):
                return pattern, match
    return None


def _checks(catalogue: Catalogue, pattern: LogPattern, match: re.Match[str]) -> Iterator[str]:
    """Yield the checks that count the event of a line. An event `….line` is decoded to another one."""
    event, groups = pattern.signal.removesuffix(".line"), match.groupdict()
    for check in catalogue.checks:
        events = (leaf for leaf in check.leaves() if isinstance(leaf, EventOccurred) and leaf.event == event)
        if event not in SIGN_EVENTS and any(_allows(leaf, groups) for leaf in events):
            yield check.id


def _allows(leaf: EventOccurred, groups: dict[str, str | None]) -> bool:
    """Return whether the fields of a line that a condition restricts have allowed values."""
    return all(
        (text := groups.get(field)) is None or text in map(str, values)
        for field, values in leaf.where.items()
    )
