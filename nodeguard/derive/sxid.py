"""Decoding of SXid lines of NVSwitches by the severity that the driver printed. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from nodeguard.model.catalogue import Catalogue, Sxid
from nodeguard.model.observation import Event
from nodeguard.model.signal import Scalar

_UNLISTED = Sxid(0, "a code that the table does not list")

# Actions that are too weak for a fatal error.
_MILD = frozenset({"none", "monitor"})

# Actions of the table for temperature codes, which the driver prints without a severity. The code that ends
# an alarm is the next one after the code that begins it.
_ALARM, _ALARM_OVER, _SHUTDOWN = "thermal_alarm", "clear_thermal_alarm", "thermal_shutdown"
# The driver prints the shutdown under the code of the alarm as well.
_SHUTS_DOWN = "Shutting Down"


def decode_sxid(event: Event, table: Catalogue) -> Event:
    """Return the event `nvswitch.sxid` of an SXid line: verdict `fatal`, `warning`, `hot` or `ignored`.

    The printed severity decides, as the driver sets it at run time; without one the table's fixed
    severity does.
    """
    code = int(event.fields["sxid"])
    row = table.sxids.get(code, _UNLISTED)
    printed = str(event.fields.get("sev", ""))
    severity = printed or {"fatal": "Fatal", "non-fatal": "Non-fatal"}.get(row.severity, "")
    message = str(event.fields.get("msg", ""))
    verdict, action = _verdict(severity, row, message, table)
    fields: dict[str, Scalar] = {
        "sxid": code,
        "summary": message or row.name.replace("_", " "),
        "verdict": verdict,
        "action": action,
        "severity": severity or "no severity",
        "block": row.block,
    }
    link = event.fields.get("link")
    if isinstance(link, int):
        fields["link"] = link
    return Event("nvswitch.sxid", event.at, event.text, fields, event.count)


def decode_alarm_end(event: Event, table: Catalogue) -> Event | None:
    """Return the event `nvswitch.cool` for a line of SXid that ends an alarm, None for another line.

    It has the code of the alarm that it ends.
    """
    row = table.sxids.get(int(event.fields["sxid"]), _UNLISTED)
    if row.action != _ALARM_OVER:
        return None
    return Event("nvswitch.cool", event.at, event.text, {"sxid": row.code - 1})


def _verdict(severity: str, row: Sxid, message: str, table: Catalogue) -> tuple[str, str]:
    if row.action == _ALARM:
        row = replace(row, action=_SHUTDOWN) if _SHUTS_DOWN in message else row
    response = table.response(row.action)
    if row.action in {_ALARM, _ALARM_OVER, _SHUTDOWN}:
        return "hot" if row.action == _ALARM else response.verdict, response.action
    harmless = response.verdict == "ignored"
    match severity:
        case "Fatal":
            return "fatal", response.action if response.action not in _MILD else "reset-gpu"
        case "Non-fatal":
            # The guide asks for an action although it calls the error itself non-fatal.
            needs_action = row.guide == "non_fatal" and response.verdict == "fatal"
            action = response.action if needs_action else "monitor"
            return ("ignored", "none") if harmless else ("warning", action)
        case "Correctable":
            return "ignored", "none"
    return "warning", "monitor"
