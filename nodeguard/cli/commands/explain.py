"""nodeguard explain: a check, a fault class, an Xid, an SXid, a line of a log or the error of a program."""

from __future__ import annotations

import re
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence

from msgspec import Struct

from nodeguard.catalog.program_messages import find_program_message
from nodeguard.cli.check_catalogue import STDIN, load_catalogue
from nodeguard.cli.options import add_checks, add_output
from nodeguard.cli.render.log_line import LogLineOutput, explain_log_line, log_line_view
from nodeguard.cli.render.program_message import program_message_view
from nodeguard.cli.render.terminal import PLAIN, StyledLine, StyledText, format_lines, view_lines
from nodeguard.cli.render.xid import (
    CodeOutput,
    code_rows,
    parse_code,
    sxid_output,
    xid_output,
)
from nodeguard.cli.streams import document_or_text, print_output
from nodeguard.cli.usage import OK, ArgumentParser, UsageError, did_you_mean
from nodeguard.fleet_api.text.check import explain_check, explain_class, explanation
from nodeguard.fleet_api.text.phrases import count_noun
from nodeguard.fleet_api.view import Field, Row, View
from nodeguard.model.catalogue import Catalogue
from nodeguard.model.check import Check
from nodeguard.model.diagnosis import FaultClass

_CODE = re.compile(r"(s?xid)[\s:#]*(.*)", re.IGNORECASE)
# Words of a text that is a sentence rather than words to search for.
_SENTENCE = 3
# Lines of a pasted text that are looked at, which takes half a second, and errors in them that are listed.
_MAX_LINES = 2_000
_MAX_ALSO = 8
_FLEET = ("node", "incident", "domain")


def run(options: Namespace) -> int:
    """Run the command; returns its exit code. Raises UsageError."""
    if options.words[0].lower() in _FLEET:
        kind = options.words[0].lower()
        raise UsageError(f"a {kind} is described, not explained: write nodeguard describe {kind} NAME")
    catalogue, _ = load_catalogue(options.checks)
    text = (sys.stdin.read() if options.words == [STDIN] else " ".join(options.words)).strip()
    if not text:
        raise UsageError("SUBJECT is empty: name a check, a code or words to search for")
    if (explained := _explained(catalogue, text)) is not None:
        document, view = explained

        def as_text() -> str:
            return format_lines([*view_lines(view, PLAIN), *_also_lines(catalogue, text, view.title)])

        print_output(document_or_text(document, options.output, as_text))
    else:
        matches = _search(catalogue, text)
        lines = list(_search_lines(text, matches))
        print_output(document_or_text(matches, options.output, lambda: format_lines(lines)))
    return OK


def _explained(catalogue: Catalogue, text: str) -> tuple[object, View] | None:
    """Return the document and the view of the first thing that a text names or quotes; None for none."""
    if (code := _code(catalogue, text)) is not None:
        return code, _code_view(catalogue, code)
    if (check := _check(catalogue, text.removeprefix("check "))) is not None:
        return check, explain_check(check)
    if (fault_class := _fault_class(catalogue, text)) is not None:
        return fault_class, explain_class(catalogue, fault_class)
    return _quoted(catalogue, text)


def _quoted(catalogue: Catalogue, text: str) -> tuple[object, View] | None:
    """Return the document and the view of the first error that a text quotes; None for none."""
    line = explain_log_line(catalogue, text)
    if isinstance(line, CodeOutput):
        return line, _code_view(catalogue, line)
    if line is not None and line.event:
        return line, log_line_view(catalogue, line)
    if (message := find_program_message(catalogue.program_messages, text)) is not None:
        return message, program_message_view(catalogue, message)
    return None if line is None else (line, log_line_view(catalogue, line))


def build_parser() -> ArgumentParser:
    """Return the parser of the command."""
    parser = ArgumentParser(
        prog="nodeguard explain",
        description="Explain what a check, a fault class, an Xid, an SXid, a line of the kernel log or the "
        "error of a program means and what to do. Other words are searched in all checks and codes.",
        examples=(
            "nodeguard explain gpu-lost",
            "nodeguard explain 79",
            "nodeguard explain sxid 20034",
            "nodeguard explain link-down",
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
        help="name of a check or a fault class; xid NUMBER, sxid NUMBER or a NUMBER; words to search for, "
        "after sxid in SXids only; a line of the kernel log; an error of CUDA, NCCL or PyTorch; or - for a "
        "text on standard input",
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
    name = name.lower().removeprefix("class ")
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
        number, is_sxid = match[2], match[1].lower() == "sxid"
        if not number:
            raise UsageError(f"'{text}' has no number: write nodeguard explain {match[1].lower()} 79")
        if is_sxid and not any(character.isdigit() for character in number):
            return None
    else:
        return None
    return sxid_output(catalogue, number) if is_sxid else xid_output(catalogue, number)


def _code_view(catalogue: Catalogue, output: CodeOutput) -> View:
    is_sxid = output.kind == "sxid"
    rows: list[Row] = list(code_rows(output))
    if output.code in (catalogue.xids if is_sxid else catalogue.sxids):
        rows.append(Field("see also", f"nodeguard explain {'xid' if is_sxid else 'sxid'} {output.code}"))
    title = output.summary if output.listed else "not in this version's table"
    return explanation(f"{'SXid' if is_sxid else 'Xid'} {output.code}", title, rows)


class MatchOutput(Struct, frozen=True):
    """A result of a search. name: what to explain. health: of a check, empty for a code."""

    name: str
    title: str
    health: str = ""


def _search(catalogue: Catalogue, text: str) -> list[MatchOutput]:
    """Return the checks and codes that contain all words of a text, only SXids if its first word is `sxid`.
    Raises UsageError for none.
    """
    words = text.lower().split()
    only_sxids = words[0] == "sxid"
    words = words[1:] if only_sxids else words

    def contains(*texts: str) -> bool:
        joined = " ".join(texts).lower()
        return all(term in joined for term in words)

    # A name or title is a better match than an explanation, which is searched where no name matches.
    checks = [check for check in catalogue.checks if contains(check.id, check.title, check.family)]
    checks = checks or [check for check in catalogue.checks if contains(check.title, check.description)]
    sxids = [
        MatchOutput(f"sxid {row.code}", row.name.replace("_", " "))
        for row in catalogue.sxids.values()
        if contains(row.name.replace("_", " "))
    ]
    matches = [MatchOutput(check.id, check.title, check.health.value) for check in checks]
    matches += [
        MatchOutput(f"xid {row.code}", row.summary)
        for row in catalogue.xids.values()
        if contains(row.name, row.summary)
    ]
    matches = sxids if only_sxids else matches + sxids
    if not matches and len(words) >= _SENTENCE:
        raise UsageError(
            "the text is no line of the kernel log and no error of a program that nodeguard knows: run "
            "nodeguard check on the node, which finds a fault of the machine without it"
        )
    if not matches:
        hint = did_you_mean(text, [check.id for check in catalogue.checks])
        raise UsageError(f"'{text}' matches no check, Xid or SXid: {hint}see nodeguard get checks")
    return matches


def _also_lines(catalogue: Catalogue, text: str, shown: str) -> Iterator[StyledLine]:
    """Yield the other errors that a text quotes, a line each. shown: title of the explained one."""
    lines = dict.fromkeys(line.strip() for line in text.splitlines()[:_MAX_LINES])
    titles: dict[str, None] = {}
    for line in lines if len(lines) > 1 else ():
        try:
            found = _quoted(catalogue, line) if line else None
        except UsageError:
            continue  # A number that is no code must not hide the explanation of another line.
        # A line that no check counts shows no fault.
        if found is not None and not (isinstance(found[0], LogLineOutput) and not found[0].checks):
            titles[found[1].title] = None
    titles.pop(shown, None)
    if titles:
        yield StyledLine()
        yield StyledLine(text="Also in this text; explain a line by itself to read more:")
    for title in list(titles)[:_MAX_ALSO]:
        yield StyledLine((StyledText("  "),), title)
    if (rest := len(titles) - _MAX_ALSO) > 0:
        yield StyledLine((StyledText("  "),), f"and {rest} more")


def _search_lines(text: str, matches: Sequence[MatchOutput]) -> Iterator[StyledLine]:
    others = [match for match in matches if not match.name.startswith("sxid ")]
    shown = others or matches
    width = max(len(match.name) for match in shown)
    title = count_noun(len(matches), "match", "matches")
    yield StyledLine((StyledText(title, "strong"), StyledText(" - ")), text, "strong")
    yield StyledLine()
    for match in shown:
        health = StyledText(f"{match.health:<9}", match.health)
        yield StyledLine((StyledText(f"{match.name:<{width}}  "), health), match.title)
    if rest := len(matches) - len(shown):
        # An SXid has only the identifier of the driver as its name: most readers look for something else.
        yield StyledLine(text=f"and {count_noun(rest, 'SXid')}: nodeguard explain sxid {text}")
    yield StyledLine()
    yield StyledLine(text="Run nodeguard explain NAME for one of these.", style="dim")
