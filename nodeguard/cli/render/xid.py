"""Explanations of Xids and SXids: meaning, NVIDIA's actions, and how nodeguard treats them. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from nodeguard.cli.usage import UsageError, quoted
from nodeguard.fleet_api.view import Field, Note, Row
from nodeguard.model.catalogue import Catalogue, Xid
from nodeguard.model.check import Compare, EventOccurred, Increase

_UNLISTED = (
    "Drivers add codes faster than tables follow. nodeguard reports it as a warning, and never as a "
    "fault. Look it up in NVIDIA's current Xid catalog."
)
_PRINTED = "The severity in the driver's message decides at run time: Fatal, Non-fatal or Correctable."
_IN_ADVANCE = f"{_PRINTED} The fields below are what is known in advance."
_NOT_LISTED = f"Neither the driver's source nor NVIDIA's guide lists it in this version. {_PRINTED}"


class CodeOutput(Struct, frozen=True):
    """Output of nodeguard explain xid N -o json, and of sxid N.

    kind: `xid` or `sxid`. listed: whether the tables have the code. actions: of NVIDIA, the immediate one
    first. treated_as: verdict and action of nodeguard, or the facts that decide them. checks: those that
    use the code.
    """

    kind: str
    code: int
    listed: bool
    name: str = ""
    summary: str = ""
    severity: str = ""
    actions: tuple[str, ...] = ()
    treated_as: str = ""
    cause: str = ""
    products: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()


def parse_code(text: str, kind: str) -> int:
    """Return the number of a code. Raises UsageError where the text is not a number."""
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise UsageError(f"{quoted(text)} is not the number of an {kind}: write for example {kind} 79")
    return int(text)


_CAUSES = {
    "yes": "applications, as a rule: counted, but does not affect node health",
    "possible": "an application or the driver",
    "unlikely": "hardware or driver; an application is unlikely",
    "no": "hardware, firmware or driver, never an application",
    "unknown": "not known",
}

# Codes with a meaning that depends on the line, or on other codes within a minute.
_DECODED = {
    45: "depends on the line: it names the process's own fault, or an application ended",
    48: "fatal; with Xid 63 or 64 within a minute: let work end first",
    74: "depends on the seven registers in the line",
    94: "depends on the driver's verdict at the end of the line",
    95: "depends on the driver's verdict at the end of the line",
    154: "depends on the number of the recovery action in the line",
}


def xid_output(catalogue: Catalogue, text: str) -> CodeOutput:
    """Return the facts on an Xid. Raises UsageError where the text is not a number."""
    code = parse_code(text, "Xid")
    row = catalogue.xids.get(code)
    if row is None:
        return CodeOutput("xid", code, listed=False, checks=_checks(catalogue, "gpu.xid.unlisted", code))
    actions = [row.action]
    if row.investigate not in {"unknown", row.action}:
        actions.append(row.investigate)
    return CodeOutput(
        kind="xid",
        code=code,
        listed=True,
        name=row.name,
        summary=row.summary,
        actions=tuple(_response(catalogue, action) for action in actions),
        treated_as=_treatment(catalogue, row),
        cause=_CAUSES[row.workload],
        products=tuple(row.applies_to),
        notes=tuple(row.notes),
        checks=_checks(catalogue, f"gpu.xid.{row.topic}", code, _verdict(catalogue, row)),
    )


def code_rows(output: CodeOutput) -> Iterator[Row]:
    """Yield the explanation of an Xid or an SXid, below its title."""
    yield from _sxid_rows(output) if output.kind == "sxid" else _xid_rows(output)
    for note in output.notes:
        yield Field("note", note)
    if output.checks:
        yield Field("checks", ", ".join(output.checks))


def _xid_rows(output: CodeOutput) -> Iterator[Row]:
    if not output.listed:
        yield Note(_UNLISTED)
        return
    yield Field("name", output.name)
    for name, action in zip(("NVIDIA: first", "NVIDIA: then"), output.actions, strict=False):
        yield Field(name, action)
    yield Field("treated as", output.treated_as)
    yield Field("caused by", output.cause)
    if output.products:
        yield Field("applies to", ", ".join(output.products))


def _sxid_rows(output: CodeOutput) -> Iterator[Row]:
    yield Note(_IN_ADVANCE if output.listed else _NOT_LISTED)
    if output.listed:
        if output.cause:
            yield Field("block", output.cause)
        yield Field("severity", output.severity)
        yield Field("action", output.actions[0] if output.actions else "not listed")


def _verdict(catalogue: Catalogue, row: Xid) -> str:
    """Return the verdict on a code, empty where it depends on the line or on other codes."""
    if row.code in _DECODED or row.topic == "nvlink5":
        return ""
    verdict = catalogue.response(row.action).verdict
    return "workload" if row.workload == "yes" and verdict != "fatal" else verdict


def _treatment(catalogue: Catalogue, row: Xid) -> str:
    verdict = _verdict(catalogue, row)
    if not verdict:
        return _DECODED.get(row.code, "depends on the two registers in the line, decoded by mask")
    if verdict == "workload":
        return "a fault of the workload"
    action = catalogue.response(row.action).action
    return f"{verdict}, action {action}"


def _response(catalogue: Catalogue, action: str) -> str:
    response = catalogue.responses.get(action)
    return f"{action}: {response.meaning}" if response and response.meaning else action


def sxid_output(catalogue: Catalogue, text: str) -> CodeOutput:
    """Return the facts on an SXid. Raises UsageError where the text is not a number."""
    code = parse_code(text, "SXid")
    row = catalogue.sxids.get(code)
    checks = _checks(catalogue, "nvswitch.sxid", code)
    if row is None:
        return CodeOutput("sxid", code, listed=False, checks=checks)
    return CodeOutput(
        kind="sxid",
        code=code,
        listed=True,
        name=row.name,
        summary=row.name.replace("_", " "),
        severity=row.severity,
        actions=() if row.action == "unknown" else (_response(catalogue, row.action),),
        cause=row.block,
        notes=tuple(filter(None, (f"guide: {row.guide.replace('_', ' ')}" if row.guide else "", row.note))),
        checks=checks,
    )


def _checks(catalogue: Catalogue, event: str, code: int, verdict: str = "") -> tuple[str, ...]:
    """Return the checks that use a code. verdict: on the code, where it is known in advance."""
    return tuple(
        check.id
        for check in catalogue.checks
        if any(_uses(leaf, event, code, verdict) for leaf in check.leaves())
    )


def _uses(leaf: Compare | Increase | EventOccurred, event: str, code: int, verdict: str) -> bool:
    return (
        isinstance(leaf, EventOccurred)
        and leaf.event == event
        and code in leaf.where.get("xid", (code,))
        and (not verdict or verdict in leaf.where.get("verdict", (verdict,)))
    )
