"""What an Xid or an SXid means, how it is held, and which checks hear of it. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from nodeguard.cli.render.terminal import StyledLine, StyledText, field_line
from nodeguard.cli.usage import UsageError
from nodeguard.model.catalogue import Catalogue, Xid
from nodeguard.model.check import Compare, EventOccurred, Increase

_UNLISTED = (
    "Drivers add codes faster than tables follow. It is kept and shown as a warning, and never taken "
    "for harm. Look it up in NVIDIA's current Xid catalogue."
)
_PRINTED = (
    "The severity that the driver printed decides - Fatal, Non-fatal or Correctable -, as it is settled at "
    "run time."
)
_BEFOREHAND = f"{_PRINTED} What stands here is what is known beforehand."
_NOT_LISTED = (
    f"Neither the driver's source nor NVIDIA's guide, as this version knows them, list it. {_PRINTED}"
)


def _number(text: str, kind: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise UsageError(f"'{text}' is no {kind}: write its number")
    return int(text)


def xid_lines(catalogue: Catalogue, name: str) -> Iterator[StyledLine]:
    """The lines on an Xid. Raises UsageError where the name is no number."""
    code = _number(name, "Xid")
    row = catalogue.xids.get(code)
    if row is None:
        yield StyledLine(
            (StyledText(f"Xid {code}", "strong"), StyledText(" - ")), "not in this version's table", "strong"
        )
        yield StyledLine()
        yield StyledLine(text=_UNLISTED)
        yield from _checks(catalogue, "gpu.xid.unlisted", code)
        return
    yield StyledLine((StyledText(f"Xid {code}", "strong"), StyledText(" - ")), row.summary, "strong")
    yield StyledLine()
    yield field_line("name", row.name)
    yield from _response(catalogue, "asks for", row.action)
    if row.investigate != "unknown":
        yield from _response(catalogue, "and then", row.investigate)
    yield field_line("held as", _held(catalogue, row))
    yield field_line("caused by", _CAUSES[row.workload])
    if row.applies_to:
        yield field_line("applies to", ", ".join(row.applies_to))
    for note in row.notes:
        yield field_line("note", note)
    yield from _checks(catalogue, f"gpu.xid.{row.topic}", code, _verdict(catalogue, row))


_CAUSES = {
    "yes": "applications, as a rule: counted and shown, never held against the node",
    "possible": "an application or the driver",
    "unlikely": "hardware or driver; an application is unlikely",
    "no": "hardware, firmware or driver, never an application",
    "unknown": "not known",
}

# Codes whose meaning depends on what stands beside them, in the line or in the minute around it.
_DECODED = {
    45: "by the line: it names its parent, or an application ended",
    48: "fatal; with 63 or 64 within a minute: let work end first",
    74: "by its seven registers",
    94: "by the driver's own verdict at the end of the line",
    95: "by the driver's own verdict at the end of the line",
    154: "by the number of the recovery action in the line",
}


def _verdict(catalogue: Catalogue, row: Xid) -> str:
    """How a code is held, empty where that depends on what stands beside it."""
    if row.code in _DECODED or row.topic == "nvlink5":
        return ""
    verdict = catalogue.response(row.action).verdict
    return "workload" if row.workload == "yes" and verdict != "fatal" else verdict


def _held(catalogue: Catalogue, row: Xid) -> str:
    verdict = _verdict(catalogue, row)
    if not verdict:
        return _DECODED.get(row.code, "by the two words in the line, decoded by mask")
    if verdict == "workload":
        return "the workload's"
    return f"{verdict}; {catalogue.response(row.action).action}"


def _response(catalogue: Catalogue, name: str, word: str) -> Iterator[StyledLine]:
    response = catalogue.responses.get(word)
    yield field_line(name, f"{word}: {response.meaning}" if response and response.meaning else word)


def sxid_lines(catalogue: Catalogue, name: str) -> Iterator[StyledLine]:
    """The lines on an SXid. Raises UsageError where the name is no number."""
    code = _number(name, "SXid")
    row = catalogue.sxids.get(code)
    title = row.name.replace("_", " ") if row else "not in this version's table"
    yield StyledLine((StyledText(f"SXid {code}", "strong"), StyledText(" - ")), title, "strong")
    yield StyledLine()
    yield StyledLine(text=_BEFOREHAND if row else _NOT_LISTED)
    yield StyledLine()
    if row:
        if row.block:
            yield field_line("block", row.block)
        yield field_line("severity", row.severity)
        yield field_line("guide", row.guide.replace("_", " "))
        if row.action == "unknown":
            yield field_line("action", "not listed")
        else:
            yield from _response(catalogue, "action", row.action)
        if row.note:
            yield field_line("note", row.note)
    yield from _checks(catalogue, "nvswitch.sxid", code)


def _checks(catalogue: Catalogue, event: str, code: int, verdict: str = "") -> Iterator[StyledLine]:
    """The checks that hear of a code. verdict: how it is held, where that is settled beforehand."""
    hearing = [
        check.id
        for check in catalogue.checks
        if any(_hears(leaf, event, code, verdict) for leaf in check.leaves())
    ]
    if hearing:
        yield field_line("checks", ", ".join(hearing))


def _hears(leaf: Compare | Increase | EventOccurred, event: str, code: int, verdict: str) -> bool:
    return (
        isinstance(leaf, EventOccurred)
        and leaf.event == event
        and code in leaf.where.get("xid", (code,))
        and (not verdict or verdict in leaf.where.get("verdict", (verdict,)))
    )
