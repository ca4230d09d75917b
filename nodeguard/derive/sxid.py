"""SXid lines of NVSwitches, held by the severity that the driver printed. Pure."""

from __future__ import annotations

from nodeguard.model.catalogue import Catalogue, Response, Sxid
from nodeguard.model.observation import Event
from nodeguard.model.signal import Scalar

_UNKNOWN = Response("warning", "watch")
_UNLISTED = Sxid(0, "a code that the table does not list", "", "unknown", "not_listed", "unknown")

# Actions that a fatal error asks for more than.
_MILD = frozenset({"none", "watch"})

THERMAL_START, THERMAL_END = 10004, 10005


def held(event: Event, table: Catalogue) -> Event:
    """The event `nvswitch.sxid` that a line of SXid becomes: verdict `fatal`, `warning` or `ignored`.

    The printed word decides, as the driver decides severity at run time; without one the table's fixed
    severity does.
    """
    code = int(event.fields["sxid"])
    row = table.sxids.get(code, _UNLISTED)
    printed = str(event.fields.get("sev", ""))
    severity = printed or {"fatal": "Fatal", "non-fatal": "Non-fatal"}.get(row.severity, "")
    verdict, action = _verdict(severity, row, table.responses.get(row.action, _UNKNOWN))
    fields: dict[str, Scalar] = {
        "sxid": code,
        "summary": str(event.fields.get("msg", "")) or row.name.replace("_", " "),
        "verdict": verdict,
        "action": action,
        "severity": severity or "no severity",
        "block": row.block,
    }
    link = event.fields.get("link")
    if isinstance(link, int):
        fields["link"] = link
    return Event("nvswitch.sxid", event.at, event.text, fields, event.count)


def _verdict(severity: str, row: Sxid, response: Response) -> tuple[str, str]:
    if row.code in {THERMAL_START, THERMAL_END}:
        return ("warning", "watch") if row.code == THERMAL_START else ("ignored", "none")
    harmless = response.verdict == "ignored"
    match severity:
        case "Fatal":
            return "fatal", response.action if response.action not in _MILD else "reset-gpu"
        case "Non-fatal":
            # What the guide asks for where it calls the error itself non-fatal.
            asked = row.guide == "non_fatal" and response.verdict == "fatal"
            return ("ignored", "none") if harmless else ("warning", response.action if asked else "watch")
        case "Correctable":
            return "ignored", "none"
    return "warning", "watch"
