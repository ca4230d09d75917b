"""nodeguard explain: what a check, an Xid or an SXid means, and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nodeguard.cli.knowledge import knowledge
from nodeguard.cli.page import Line, Words, show
from nodeguard.cli.usage import OK, Parser, UsageError, near
from nodeguard.cli.wording import facts
from nodeguard.model.catalogue import Catalogue, Sxid, Xid
from nodeguard.model.check import Compare, Happened, Increase

_FIELD = 14
_UNLISTED = (
    "Drivers add codes faster than tables follow. It is kept and shown as a warning, and never taken "
    "for harm. Look it up in NVIDIA's current Xid catalogue."
)
_PRINTED = (
    "The severity that the driver printed decides - Fatal, Non-fatal or Correctable -, as it is settled at "
    "run time. What stands here is what is known beforehand."
)


def run(arguments: Sequence[str]) -> int:
    """Run the command; returns its exit code. Raises UsageError."""
    options = _parser().parse_args(arguments)
    catalogue, _ = knowledge(options.checks)
    words = options.what
    if len(words) == 2 and words[0] in {"xid", "sxid", "check"}:
        kind, name = words
    elif len(words) == 1:
        kind, name = "check", words[0]
    else:
        raise UsageError(f"'{' '.join(words)}' is nothing to explain: write CHECK, xid N or sxid N")
    explain = {"xid": _xid, "sxid": _sxid, "check": _check}[kind]
    show(list(explain(catalogue, name)))
    return OK


def _parser() -> Parser:
    parser = Parser(
        prog="nodeguard explain", description="Says what a check, an Xid or an SXid means and what to do."
    )
    parser.add_argument("what", nargs="+", metavar="CHECK | xid N | sxid N", help="what to explain")
    parser.add_argument(
        "--checks", metavar="DIR", action="append", default=[], help="look in this folder, too"
    )
    return parser


def _field(name: str, text: str) -> Line:
    return Line((Words(f"{name:<{_FIELD}}", "dim"),), text)


def _check(catalogue: Catalogue, name: str) -> Iterator[Line]:
    check = next((one for one in catalogue.checks if one.id == name), None)
    if check is None:
        if name in catalogue.disabled:
            raise UsageError(f"'{name}' is disabled by {catalogue.disabled[name]}")
        meant = near(name, [one.id for one in catalogue.checks])
        raise UsageError(f"'{name}' is no check: {meant}see nodeguard checks")
    yield Line((Words(check.id, "strong"), Words(" - ")), check.title, "strong")
    yield Line()
    for paragraph in check.explain.split("\n\n"):
        yield Line(text=" ".join(paragraph.split()))
    yield Line()
    yield from (_field(field, text) for field, text in facts(check))
    yield _field("runbook", check.runbook)


def _number(text: str, kind: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise UsageError(f"'{text}' is no {kind}: write its number")
    return int(text)


def _xid(catalogue: Catalogue, name: str) -> Iterator[Line]:
    code = _number(name, "Xid")
    row = catalogue.xids.get(code)
    if row is None:
        yield Line((Words(f"Xid {code}", "strong"), Words(" - ")), "not in this version's table", "strong")
        yield Line()
        yield Line(text=_UNLISTED)
        yield from _checks(catalogue, "gpu.xid.unlisted", code)
        return
    yield Line((Words(f"Xid {code}", "strong"), Words(" - ")), row.summary, "strong")
    yield Line()
    yield _field("name", row.name)
    yield from _response(catalogue, "NVIDIA says", row.action)
    if row.investigate != "unknown":
        yield from _response(catalogue, "and then", row.investigate)
    yield _field("held as", _held(catalogue, row))
    yield _field("caused by", _CAUSES[row.workload])
    if row.applies_to:
        yield _field("applies to", ", ".join(row.applies_to))
    for note in row.notes:
        yield _field("note", note)
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
    verdict = catalogue.responses.get(row.action, catalogue.responses["unknown"]).verdict
    return "workload" if row.workload == "yes" and verdict != "fatal" else verdict


def _held(catalogue: Catalogue, row: Xid) -> str:
    verdict = _verdict(catalogue, row)
    if not verdict:
        return _DECODED.get(row.code, "by the two words in the line, decoded by mask")
    if verdict == "workload":
        return "the workload's"
    return f"{verdict}; {catalogue.responses.get(row.action, catalogue.responses['unknown']).action}"


def _response(catalogue: Catalogue, field: str, word: str) -> Iterator[Line]:
    response = catalogue.responses.get(word)
    yield _field(field, f"{word}: {response.meaning}" if response and response.meaning else word)


def _sxid(catalogue: Catalogue, name: str) -> Iterator[Line]:
    code = _number(name, "SXid")
    row = catalogue.sxids.get(
        code, Sxid(code, "not in this version's table", "", "unknown", "not_listed", "unknown")
    )
    yield Line((Words(f"SXid {code}", "strong"), Words(" - ")), row.name.replace("_", " "), "strong")
    yield Line()
    yield Line(text=_PRINTED)
    yield Line()
    if row.block:
        yield _field("block", row.block)
    yield _field("severity", row.severity)
    yield _field("guide", row.guide.replace("_", " "))
    yield from _response(catalogue, "action", row.action)
    if row.note:
        yield _field("note", row.note)
    yield from _checks(catalogue, "nvswitch.sxid", code)


def _checks(catalogue: Catalogue, event: str, code: int, verdict: str = "") -> Iterator[Line]:
    """The checks that hear of a code. verdict: how it is held, where that is settled beforehand."""
    hearing = [
        check.id
        for check in catalogue.checks
        if any(_hears(leaf, event, code, verdict) for leaf in check.leaves())
    ]
    if hearing:
        yield _field("checks", ", ".join(hearing))


def _hears(leaf: Compare | Increase | Happened, event: str, code: int, verdict: str) -> bool:
    return (
        isinstance(leaf, Happened)
        and leaf.event == event
        and code in leaf.where.get("xid", (code,))
        and (not verdict or verdict in leaf.where.get("verdict", (verdict,)))
    )
