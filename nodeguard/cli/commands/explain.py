"""nodeguard explain: a check, a class, a code, a word of the output, a line of a log, a program's error."""

from __future__ import annotations

import os
import re
import shlex
import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping

from nodeguard.catalog.program_messages import find_program_message
from nodeguard.catalog.words import find_alert, find_word
from nodeguard.cli.check_catalogue import STDIN, load_catalogue
from nodeguard.cli.options import add_checks, add_output
from nodeguard.cli.render.catalogue_search import contains_words, find_named_check, search, search_lines
from nodeguard.cli.render.log_line import LogLineOutput, explain_log_line, log_line_view
from nodeguard.cli.render.nodeguard_log import (
    NodeguardLogOutput,
    find_log_message,
    find_text_message,
    is_problem,
    log_message_view,
)
from nodeguard.cli.render.program_message import program_message_view
from nodeguard.cli.render.terminal import PLAIN, StyledLine, StyledText, format_lines, view_lines
from nodeguard.cli.render.word import alert_view, signal_view, word_view
from nodeguard.cli.render.xid import CodeOutput, code_rows, parse_code, sxid_output, xid_output
from nodeguard.cli.streams import document_or_text, print_output
from nodeguard.cli.usage import OK, ArgumentParser, UsageError, quoted
from nodeguard.fleet_api.text.check import explain_check, explain_class, explanation
from nodeguard.fleet_api.view import Field, Row, View
from nodeguard.model.catalogue import Catalogue
from nodeguard.model.check import Check, EventOccurred
from nodeguard.model.diagnosis import FaultClass
from nodeguard.model.signal import Signal

# A class is a fault class of the diagnosis, or the family of checks that the value of a taint names.
_CLASS = re.compile(r"class\s+", re.IGNORECASE)
# `Xid (PCI:0000:c3:00): 94` is a part of a line of the kernel log. Words may follow the number of a code.
_CODE = re.compile(
    r"(s?xid)(?![a-z])(?![\s:#]*\(PCI:)[\s:#-]*(?:(\d+)[\s,:;-]+[^\d\s].*|(.*))", re.IGNORECASE | re.ASCII
)
# Lines and characters of a pasted text that are looked at, which takes a second, and errors that are listed.
_MAX_LINES = 2_000
_MAX_CHARACTERS = 200_000
_MAX_ALSO = 8
# Numbers that differ between lines of one kind in a log: times, steps, values. Codes of errors are shorter.
_CHANGING_NUMBER = re.compile(r"\d+(?:[.,:/e+-]+\d+)+|\d{4,}")
# Colors of a terminal, as dmesg, grep and programs also write them to a file if they are asked to.
_COLORS = re.compile(r"\x1b\[[\d;]*[mK]")
# A shell reports a process that a signal ended with 128 and the number of the signal.
_SIGNAL_BASE = 128
_FLEET = ("node", "incident", "domain")


def run(options: Namespace) -> int:
    """Run the command; returns its exit code. Raises UsageError."""
    if options.words[0].lower() in _FLEET:
        kind = options.words[0].lower()
        raise UsageError(f"a {kind} is described, not explained: write nodeguard describe {kind} NAME")
    catalogue, signals = load_catalogue(options.checks)
    is_piped = options.words == [STDIN]
    raw_text = sys.stdin.read() if is_piped else " ".join(options.words)
    text = _condense(_COLORS.sub("", raw_text).strip())
    if not text:
        subject = "standard input" if is_piped else "SUBJECT"
        raise UsageError(f"{subject} is empty: name a check, a code or words to search for")
    if (explained := _explained(catalogue, signals, text)) is not None:
        document, view = explained

        def as_text() -> str:
            return format_lines([*view_lines(view, PLAIN), *_also_lines(catalogue, text, view.title)])

        print_output(document_or_text(document, options.output, as_text))
    elif len(options.words) == 1 and os.path.isfile(text):
        raise UsageError(f"{quoted(text)} is a file: write nodeguard explain - < {shlex.quote(text)}")
    else:
        matches = search(catalogue, _CLASS.sub("", text))
        lines = list(search_lines(text, matches))
        print_output(document_or_text(matches, options.output, lambda: format_lines(lines)))
    return OK


def _condense(text: str) -> str:
    """Return a text without the lines that repeat an earlier one in all but times, steps and values.

    A log of a training has a million lines of progress before the few lines of its end. Of what remains, the
    last lines are returned, of long ones only the end. A short text is returned as it is.
    """
    lines = text.splitlines()
    if len(lines) > _MAX_LINES:
        by_kind: dict[str, str] = {}
        for line in lines:
            by_kind.setdefault(_CHANGING_NUMBER.sub("", line), line)
        text = "\n".join(list(by_kind.values())[-_MAX_LINES:])
    return text[-_MAX_CHARACTERS:]


def _explained(catalogue: Catalogue, signals: Mapping[str, Signal], text: str) -> tuple[object, View] | None:
    """Return the document and the view of the first thing that a text names or quotes; None for none."""
    if (code := _code(catalogue, text)) is not None:
        return code, _code_view(catalogue, code, is_bare=text.isdigit())
    if (check := _check(catalogue, text.removeprefix("check "))) is not None:
        return check, explain_check(check)
    if (fault_class := _fault_class(catalogue, text)) is not None:
        return fault_class, explain_class(catalogue, fault_class)
    if (alert := find_alert(catalogue.alerts, text)) is not None:
        return alert, alert_view(alert)
    if (word := find_word(catalogue.words, text)) is not None:
        words = text.lower().split()
        return word, word_view(
            text, word, [check.id for check in catalogue.checks if contains_words(words, check.id)]
        )
    if (signal := signals.get(text)) is not None:
        return signal, signal_view(signal, [check.id for check in catalogue.checks if _reads(check, text)])
    if (quoted_text := _quoted(catalogue, text)) is not None:
        return quoted_text
    named_check = find_named_check(catalogue, text)
    return None if named_check is None else (named_check, explain_check(named_check))


def _quoted(catalogue: Catalogue, text: str) -> tuple[object, View] | None:
    """Return the document and the view of the first error that a text quotes; None for none."""
    if (own_line := find_log_message(text)) is not None:
        return own_line, log_message_view(own_line)
    line = explain_log_line(catalogue, text)
    if isinstance(line, CodeOutput):
        return line, _code_view(catalogue, line)
    if line is not None and line.event:
        return line, log_line_view(catalogue, line)
    if (message := find_program_message(catalogue.program_messages, text)) is not None:
        return message, program_message_view(catalogue, message)
    if (own_text := find_text_message(text)) is not None:
        return own_text, log_message_view(own_text)
    return None if line is None else (line, log_line_view(catalogue, line))


def build_parser() -> ArgumentParser:
    """Return the parser of the command."""
    parser = ArgumentParser(
        prog="nodeguard explain",
        description="Explain what a check, a class of faults, an Xid, an SXid, a line of the kernel log or "
        "the error of a program means and what to do, and what a word of nodeguard's output or an alert "
        "means. Other words are searched in all checks and codes.",
        examples=(
            "nodeguard explain gpu-lost",
            "nodeguard explain 79",
            "nodeguard explain sxid 20034",
            "nodeguard explain link-down",
            "nodeguard explain withheld",
            "nodeguard explain NodeguardFrozen",
            "nodeguard explain ecc",
            "nodeguard explain 'NCCL timeout'",
            "nodeguard explain 'nvme nvme0: I/O 221 QID 12 timeout, aborting'",
            "nodeguard explain - < error.log",
        ),
    )
    parser.add_argument(
        "words",
        nargs="+",
        metavar="SUBJECT",
        help="name of a check, a class, a signal, a metric or an alert; a state, a reason or another word "
        "that nodeguard prints; xid NUMBER, sxid NUMBER or a NUMBER; words to search for, after sxid in "
        "SXids only; a line of the kernel log or of nodeguard's log; an error of CUDA, NCCL, "
        "PyTorch, Slurm or Kubernetes; or - for a text on standard input",
    )
    add_output(parser, "text", "json", "yaml")
    add_checks(parser)
    return parser


def _check(catalogue: Catalogue, name: str) -> Check | None:
    """Return the check of a name, None for none. Raises UsageError for a disabled one."""
    name = name.lower()
    if name in catalogue.disabled:
        raise UsageError(f"check '{name}' is disabled by {catalogue.disabled[name]}")
    return next((check for check in catalogue.checks if check.id == name), None)


def _fault_class(catalogue: Catalogue, name: str) -> FaultClass | None:
    """Return the fault class of a name, None for none."""
    name = _CLASS.sub("", name).lower()
    return next((item for item in catalogue.fault_classes if item.name == name), None)


def _code(catalogue: Catalogue, text: str) -> CodeOutput | None:
    """Return the facts on a code, None for another text, also for words after `sxid`: they are searched.
    Raises UsageError for a code without a number.

    A plain number is an Xid, or an SXid that is listed where no such Xid is.
    """
    if text.isascii() and text.isdigit():
        number, code = text, parse_code(text, "Xid")
        is_sxid = code in catalogue.sxids and code not in catalogue.xids
    elif match := _CODE.fullmatch(text):
        number, is_sxid = match[2] or match[3], match[1].lower() == "sxid"
        if not number:
            raise UsageError(f"{quoted(text)} has no number: write nodeguard explain {match[1].lower()} 79")
        if is_sxid and not any(character.isdigit() for character in number):
            return None
    else:
        return None
    return sxid_output(catalogue, number) if is_sxid else xid_output(catalogue, number)


def _code_view(catalogue: Catalogue, output: CodeOutput, *, is_bare: bool = False) -> View:
    """Return the view of a code. is_bare: of a number that may be an exit code instead."""
    is_sxid = output.kind == "sxid"
    rows: list[Row] = list(code_rows(output))
    if output.code in (catalogue.xids if is_sxid else catalogue.sxids):
        rows.append(Field("see also", f"nodeguard explain {'xid' if is_sxid else 'sxid'} {output.code}"))
    if is_bare and output.code > _SIGNAL_BASE:
        exit_code = f"exit code {output.code}"
        if find_program_message(catalogue.program_messages, exit_code) is not None:
            rows.append(Field("see also", f"nodeguard explain '{exit_code}'"))
    title = output.summary if output.listed else "not in this version's table"
    return explanation(f"{'SXid' if is_sxid else 'Xid'} {output.code}", title, rows)


def _reads(check: Check, signal: str) -> bool:
    """Return whether a check evaluates a signal."""
    leaves = check.leaves()
    return signal in (leaf.event if isinstance(leaf, EventOccurred) else leaf.signal for leaf in leaves)


def _also_lines(catalogue: Catalogue, text: str, shown: str) -> Iterator[StyledLine]:
    """Yield the other errors that a text quotes, a line each. shown: title of the explained one."""
    lines = dict.fromkeys(line.strip() for line in text.splitlines())
    titles: dict[str, None] = {}
    for line in lines if len(lines) > 1 else ():
        try:
            found = _quoted(catalogue, line) if line else None
        except UsageError:
            continue  # A number that is no code must not hide the explanation of another line.
        if found is not None and _shows_problem(found[0]):
            titles[found[1].title] = None
    titles.pop(shown, None)
    if titles:
        yield StyledLine()
        yield StyledLine(text="Also in this text; explain a line by itself to read more:")
    for title in list(titles)[:_MAX_ALSO]:
        yield StyledLine((StyledText("  "),), title)
    if (rest := len(titles) - _MAX_ALSO) > 0:
        yield StyledLine((StyledText("  "),), f"and {rest} more")


def _shows_problem(document: object) -> bool:
    """Return whether what a text quotes is a problem: a line of a log may only report a change."""
    match document:
        case LogLineOutput():
            return bool(document.checks)
        case NodeguardLogOutput():
            return is_problem(document)
    return True
