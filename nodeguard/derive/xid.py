"""Xid lines and events, read with the table and with what came before them. Pure.

A line becomes an event `gpu.xid.TOPIC` with the field `verdict`: it is `fatal`, `suspect`,
`warning`, `workload` (an application did this: counted, never held against the node), `ignored`, or
`injected` (a test).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from nodeguard.derive.nvlink5 import decode_nvlink5
from nodeguard.derive.xid74 import XidMeaning, decode_xid74
from nodeguard.derive.xid_index import XidIndex, XidRecord, xid_row
from nodeguard.model.catalogue import Catalogue, Xid
from nodeguard.model.observation import Event
from nodeguard.model.signal import Scalar

_PREFIX = re.compile(r"(?:pid='?<?[\w-]+>?'?(?:, |$))?(?:name=.*?(?:, |$))?")
_PARENT = re.compile(r"caused by previous Xid (\d+)")
_CONTAINED = re.compile(r"RST: (Yes|No), D-RST: (Yes|No)")
_RECOVERY = re.compile(r"changed from 0x([0-9a-fA-F]+) .*? to 0x([0-9a-fA-F]+) ")
_RECOVERY_CODE = 154

# Topics that are held by the words of their line, so that the number alone is not known to be harm.
_WORDED = frozenset({"nvlink", "nvlink5", "recovery"})


def decode_xid(event: Event, table: Catalogue, driver: int | None, near: XidIndex) -> Event:
    """Return the event that a line of Xid becomes.

    event: with the fields `xid` and `rest`. driver: the driver's branch, such as 580, None where unknown.
    near: the recent Xids of the same GPU, this one among them.
    """
    code = int(event.fields["xid"])
    message = _message(event)
    row = xid_row(code, table)
    read = _read(_Line(code, message, event.at, row), table, driver, near)
    response = table.response(read.response)
    verdict, action = response.verdict, response.action
    if row.workload == "yes" and verdict != "fatal" and not read.verdict:
        verdict, action = "workload", "none"
    fields: dict[str, Scalar] = {
        "xid": code,
        "name": row.name,
        "summary": row.summary,
        "response": read.response,
        "verdict": read.verdict or verdict,
        "action": read.action or action,
        "why": f" ({read.reason})" if read.reason else "",
        "recovery_reported": row.topic == "recovery"
        or 0 < row.reports_recovery <= (driver or row.reports_recovery),
    }
    if row.topic == "nvlink":
        fields["recoverable"] = read.recoverable
        # The driver reports no recovery for a link that can be trained again, so its "none" ends nothing.
        fields["recovery_reported"] = fields["recovery_reported"] and not read.recoverable
    if row.topic in _WORDED:
        # A number alone means nothing beside the line that says what it is about, whichever comes first.
        fields["told_elsewhere"] = not message and near.has_message_near(code, event.at)
    if read.link >= 0:
        fields["link"] = read.link
    return Event(f"gpu.xid.{row.topic}", event.at, event.text, fields, event.count)


def summarize_xid(event: Event) -> XidRecord:
    """What a line or event of Xid leaves behind for those near it."""
    code, message = int(event.fields["xid"]), _message(event)
    recovery = recovery_action_in(message) if code == _RECOVERY_CODE else None
    return XidRecord(code, event.at, -1 if recovery is None else recovery, bool(message))


def _message(event: Event) -> str:
    """What a line says besides its code and its process; empty for an event of NVML."""
    return _PREFIX.sub("", str(event.fields.get("rest", "")), count=1)


class _Line(NamedTuple):
    """A line of Xid: its code, its words, seconds since boot, and the table's row of the code."""

    code: int
    message: str
    at: float
    row: Xid


def _read(line: _Line, table: Catalogue, driver: int | None, near: XidIndex) -> XidMeaning:
    match line.code:
        case 45:
            return _preempted(line, near)
        case 48:
            repair = near.repair(line.at)
            if repair:
                return XidMeaning("DRAIN_AND_RESET", f"with Xid {repair}: drain, then reset")
            return XidMeaning("RESET_GPU")
        case 94 | 95:
            return _contained(line.message, line.row)
        case 154:
            return _recovery(line.message, table)
        case 74:
            return decode_xid74(line.message, table)
    if line.row.topic == "nvlink5":
        return _nvlink5(line, table, driver, near)
    return XidMeaning(line.row.action)


def _preempted(line: _Line, near: XidIndex) -> XidMeaning:
    """45 follows what newer drivers name at its end, or else an error near it that no application causes."""
    found = _PARENT.search(line.message)
    cause = int(found[1]) if found else near.cause(line.at)
    if not cause:
        return XidMeaning(line.row.action)
    return XidMeaning("IGNORE", f"follows Xid {cause}", verdict="ignored", action="none")


def _contained(message: str, row: Xid) -> XidMeaning:
    """94 and 95 end with the driver's own verdict: whether to reset, and whether to drain first."""
    flags = _CONTAINED.search(message)
    if flags is None:
        return XidMeaning(row.action)
    reset, drain = flags[1] == "Yes", flags[2] == "Yes"
    if drain and not reset:
        return XidMeaning("DRAIN_AND_RESET", "the driver asks to drain and reset")
    return XidMeaning("RESET_GPU", "the driver asks for a reset") if reset else XidMeaning(row.action)


def recovery_action_in(message: str) -> int | None:
    """The recovery action, by number, that a line of Xid 154 says is wanted now; None where it says none."""
    found = _RECOVERY.search(message + " ")
    return int(found[2], 16) if found else None


def _recovery(message: str, table: Catalogue) -> XidMeaning:
    value = recovery_action_in(message)
    if value is None:
        return XidMeaning("unknown")
    row = table.recovery.get(value)
    if value == 0:
        return XidMeaning("XID_154", "nothing is left to be done", verdict="ignored", action="none")
    if row is None:
        return XidMeaning("XID_154", f"recovery action {value}", verdict="fatal", action="contact-support")
    return XidMeaning("XID_154", row.name, verdict="fatal", action=row.action)


def _nvlink5(line: _Line, table: Catalogue, driver: int | None, near: XidIndex) -> XidMeaning:
    found = decode_nvlink5(line.code, line.message, table.nvlink5, driver)
    if found is None:
        return XidMeaning(line.row.action if line.message else "unknown")
    where = f"link {found.link}" if found.link >= 0 else "no single link"
    if found.injected:
        return XidMeaning(
            "IGNORE", f"{where}, injected by a test", verdict="injected", action="none", link=found.link
        )
    if found.rule is None:
        printed = "fatal" if found.fatal else "non-fatal"
        response = "RESET_GPU" if found.fatal else "unknown"
        return XidMeaning(
            response, f"{where}: {found.unit}, a sub-code not listed, printed {printed}", link=found.link
        )
    response = found.rule.action
    if response == "XID_154_EVAL":
        response = "RESET_GPU" if near.asks_for_recovery(line.at) else "RESTART_APP"
    why = ", ".join(part for part in (where, found.unit, found.rule.meaning) if part)
    return XidMeaning(response, why, link=found.link)
