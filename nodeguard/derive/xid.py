"""Decoding of Xid lines and events with the Xid table and the Xids near them in time. Pure.

A line becomes an event `gpu.xid.TOPIC`. Its field `verdict` is `fatal`, `suspect`, `warning`, `workload` (an
error of an application: counted, but no fault of the node), `ignored`, or `injected` (a test).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from msgspec.structs import replace

from nodeguard.derive.nvlink_xid import XidMeaning, decode_nvlink5, decode_xid74
from nodeguard.derive.xid_index import XidIndex, XidRecord, xid_row
from nodeguard.model.catalogue import Catalogue, Xid
from nodeguard.model.observation import Event, Reading
from nodeguard.model.signal import Scalar

_PREFIX = re.compile(r"(?:pid='?<?(?P<pid>[\w-]+)>?'?(?:, |$))?(?:name=(?P<process>.*?)(?:, |$))?")
_PARENT = re.compile(r"caused by previous Xid (\d+)")
_CONTAINED = re.compile(r"RST: (Yes|No), D-RST: (Yes|No)")
# The page is taken out at the next start of the driver, as with Xid 63. Source: NVIDIA open GPU kernel
# modules, ctrl2080fb.h, which counts this status among the reasons for a failure that are no exception.
_PENDING_ALREADY = "already pending retirement"
# Recovery actions that only a start of the machine or of the driver completes. A GPU that was closed and
# opened again reports "none", as its new state does not have the request.
_REBOOTS = frozenset({2, 7})

_RECOVERY = re.compile(r"changed from 0x([0-9a-fA-F]+) .*? to 0x([0-9a-fA-F]+) ")
_PREEMPTED_CODE, _LINK_CODE, _RECOVERY_CODE = 45, 74, 154

# Topics with a meaning that depends on the message, so that the code does not show a fault.
_NEEDS_MESSAGE = frozenset({"nvlink", "nvlink5", "recovery"})


def decode_xid(event: Event, table: Catalogue, driver: int | None, near: XidIndex) -> Event:
    """Return the decoded event of an Xid line.

    event: with the fields `xid` and `rest`. driver: the driver's branch, such as 580, None where unknown.
    near: the recent Xids of the same GPU, including this one.
    """
    code = int(event.fields["xid"])
    message = _message(event)
    cause = _missing_cause(code, message, event.at, near)
    if cause:
        code, message = cause, ""
    row = xid_row(code, table)
    line = _Line(code, message, event.at, row)
    meaning = _named(line, table, near) if cause else _meaning(line, table, driver, near)
    response = table.response(meaning.response)
    verdict, action = response.verdict, response.action
    if row.workload == "yes" and verdict != "fatal" and not meaning.verdict:
        verdict, action = "workload", "none"
    fields: dict[str, Scalar] = {
        "xid": code,
        "name": row.name,
        "summary": row.summary,
        "response": meaning.response,
        "verdict": meaning.verdict or verdict,
        "action": meaning.action or action,
        "detail": _detail(meaning.reason),
        "recovery_reported": recovery_action_in(message) not in _REBOOTS
        if row.topic == "recovery"
        else 0 < row.reports_recovery <= (driver or row.reports_recovery),
    }
    fields |= _process(event)
    if row.topic == "nvlink":
        fields["recoverable"] = meaning.recoverable
        # The driver reports no recovery for a link that can be trained again, so its "none" clears nothing.
        fields["recovery_reported"] = fields["recovery_reported"] and not meaning.recoverable
    if row.topic in _NEEDS_MESSAGE:
        # A code without a message has no meaning of its own beside the log line, whichever comes first.
        fields["reported_by_log"] = not message and near.has_message_near(code, event.at)
    if meaning.link >= 0:
        fields["link"] = meaning.link
    return Event(f"gpu.xid.{row.topic}", event.at, event.text, fields, event.count)


def ended_codes(table: Catalogue) -> dict[int, tuple[int, ...]]:
    """Return the codes of the faults that each Xid reports as over, for those that report any."""
    ended: dict[int, tuple[int, ...]] = {}
    for row in table.xids.values():
        for code in row.ended_by:
            ended[code] = (*ended.get(code, ()), row.code)
    return ended


def xid_events(readings: Iterable[Reading], table: Catalogue) -> Iterator[tuple[str, int, int]]:
    """Yield target, code and number of the decoded Xids in readings; the code is 0 if the table lacks it."""
    for reading in readings:
        for observation in reading.observations:
            for event in observation.events:
                if event.signal.startswith("gpu.xid.") and "xid" in event.fields:
                    code = int(event.fields["xid"])
                    yield observation.target, code if code in table.xids else 0, event.count


def summarize_xid(event: Event) -> XidRecord:
    """Return the record of an Xid that decodes the Xids near it."""
    code, message = int(event.fields["xid"]), _message(event)
    recovery = recovery_action_in(message) if code == _RECOVERY_CODE else None
    action = -1 if recovery is None else recovery
    return XidRecord(code, event.at, action, bool(message), _named_cause(code, message))


def _message(event: Event) -> str:
    """Return the message of a line without its code and process; empty for an event of NVML."""
    return _PREFIX.sub("", str(event.fields.get("rest", "")), count=1)


def _detail(reason: str) -> str:
    return f" ({reason})" if reason else ""


def _missing_cause(code: int, message: str, at: float, near: XidIndex) -> int:
    """Return the code that a line of Xid 45 names as its cause, if the log has no such Xid; else 0.

    The line then reports the cause: it may be out of the log, or beyond a limit of its rate.
    """
    cause = _named_cause(code, message)
    return 0 if near.is_near(cause, at) or near.is_named_before(cause, at) else cause


def _named_cause(code: int, message: str) -> int:
    """Return the code that a line of Xid 45 names as its cause; 0 for other lines."""
    parent = _PARENT.search(message) if code == _PREEMPTED_CODE else None
    cause = int(parent[1]) if parent else 0
    return 0 if cause == _PREEMPTED_CODE else cause


def _process(event: Event) -> dict[str, Scalar]:
    """Return the number and the name of the process that a line names; empty if it names none."""
    match = _PREFIX.match(str(event.fields.get("rest", "")))
    if match is None or not (match["pid"] or "").isdecimal():
        return {}
    name = match["process"] or ""
    return {"pid": int(match["pid"]), "process": "" if name == "<unknown>" else name}


class _Line(NamedTuple):
    """An Xid: its code, its message, seconds since boot, and the table's row of the code."""

    code: int
    message: str
    at: float
    row: Xid


def _meaning(line: _Line, table: Catalogue, driver: int | None, near: XidIndex) -> XidMeaning:
    match line.code:
        case 45:
            return _preempted(line, near)
        case 48:
            repair = near.repair(line.at)
            reason = f"with Xid {repair}: drain, then reset"
            return XidMeaning("DRAIN_AND_RESET", reason) if repair else XidMeaning("RESET_GPU")
        case 64 if _PENDING_ALREADY in line.message:
            reason = "the page is already pending retirement"
            return XidMeaning("IGNORE", reason, verdict="ignored", action="none")
        case 94 | 95:
            return _contained(line.message, line.row)
        case 154:
            return _recovery(line.message, table)
        case 74:
            return decode_xid74(line.message, table)
    if line.row.topic == "nvlink5":
        return _nvlink5(line, table, driver, near)
    return XidMeaning(line.row.action)


def _named(line: _Line, table: Catalogue, near: XidIndex) -> XidMeaning:
    """Return the meaning of a cause that Xid 45 names and the log lacks.

    An NVLink error that ended a channel is none of the harmless ones. Where all others of its code ask for
    a reset, so does the code; else it follows Xid 154.
    """
    reason = "named by Xid 45, and not in the log itself"
    if line.code == _LINK_CODE:
        return XidMeaning("unknown", reason, verdict="suspect", action="reset-gpu", recoverable=True)
    if line.row.topic != "nvlink5":
        return replace(_meaning(line, table, None, near), reason=reason)
    actions = {rule.action for rule in table.nvlink5 if rule.xid == line.code} - {"IGNORE"}
    response = "RESET_GPU" if actions == {"RESET_GPU"} else "XID_154_EVAL"
    return XidMeaning(_evaluated(response, line, near), reason)


def _preempted(line: _Line, near: XidIndex) -> XidMeaning:
    """Return the meaning of 45: a consequence of the Xid that it names, or of an error of the GPU near it."""
    parent = _PARENT.search(line.message)
    cause = int(parent[1]) if parent else near.cause(line.at)
    if not cause:
        return XidMeaning(line.row.action)
    return XidMeaning("IGNORE", f"follows Xid {cause}", verdict="ignored", action="none")


def _contained(message: str, row: Xid) -> XidMeaning:
    """Return the meaning of 94 and 95, which end with the driver's request to reset or to drain first."""
    flags = _CONTAINED.search(message)
    if flags is None:
        return XidMeaning(row.action)
    reset, drain = flags[1] == "Yes", flags[2] == "Yes"
    if drain and not reset:
        return XidMeaning("DRAIN_AND_RESET", "the driver asks to drain and reset")
    return XidMeaning("RESET_GPU", "the driver asks for a reset") if reset else XidMeaning(row.action)


def recovery_action_in(message: str) -> int | None:
    """Return the number of the recovery action that an Xid 154 asks for; None without one."""
    match = _RECOVERY.search(message + " ")
    return int(match[2], 16) if match else None


def _recovery(message: str, table: Catalogue) -> XidMeaning:
    value = recovery_action_in(message)
    if value is None:
        return XidMeaning("unknown")
    row = table.recovery.get(value)
    if value == 0:
        return XidMeaning("XID_154", "no recovery is needed", verdict="ignored", action="none")
    if row is None:
        return XidMeaning("XID_154", f"recovery action {value}", verdict="fatal", action="contact-support")
    return XidMeaning("XID_154", row.name, verdict="fatal", action=row.action)


def _nvlink5(line: _Line, table: Catalogue, driver: int | None, near: XidIndex) -> XidMeaning:
    error = decode_nvlink5(line.code, line.message, table.nvlink5, driver)
    if error is None:
        return XidMeaning(line.row.action if line.message else "unknown")
    link = f"link {error.link}" if error.link >= 0 else "no single link"
    if error.injected:
        return XidMeaning(
            "IGNORE", f"{link}, injected by a test", verdict="injected", action="none", link=error.link
        )
    if error.rule is None:
        printed = "fatal" if error.fatal else "non-fatal"
        response = "RESET_GPU" if error.fatal else "unknown"
        return XidMeaning(
            response, f"{link}: {error.unit}, a sub-code not listed, printed {printed}", link=error.link
        )
    response = _evaluated(error.rule.action, line, near)
    reason = ", ".join(part for part in (link, error.unit, error.rule.meaning) if part)
    return XidMeaning(response, reason, link=error.link)


def _evaluated(response: str, line: _Line, near: XidIndex) -> str:
    """Return a response of the NVLink 5 table; one that leaves it to Xid 154 follows that."""
    if response != "XID_154_EVAL":
        return response
    return "RESET_GPU" if near.asks_for_recovery(line.at) else "RESTART_APP"
