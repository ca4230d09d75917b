"""Google Cloud: host maintenance, and preemption of spot machines. Pure.

Source: Google Cloud Compute documentation: host maintenance events, upcoming-maintenance metadata, spot VMs.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from nodeguard.sources.clouds.cloud import (
    Cloud,
    Feed,
    PlannedEvent,
    decode_json,
    describe,
    one_line,
    parse_start,
)
from nodeguard.sources.machine import MetadataRequest

# Kind and notice in seconds. A machine with GPUs cannot be migrated live.
_EVENTS = {
    "MIGRATE_ON_HOST_MAINTENANCE": ("migrate", 60.0),
    "TERMINATE_ON_HOST_MAINTENANCE": ("terminate", 3600.0),
}
_UPCOMING = "maintenance"
# A notice of maintenance has at least one of these fields.
_FIELDS = frozenset(("type", "maintenance_status", "window_start_time"))


def event(body: str) -> tuple[PlannedEvent, ...]:
    """Return the event that will happen to the host. Raises ValueError."""
    event_type = body.strip()
    if event_type == "NONE":
        return ()
    if event_type not in _EVENTS:
        raise ValueError(body)
    kind, notice = _EVENTS[event_type]
    return (PlannedEvent(kind, describe("Google", event_type, ""), notice=notice),)


def upcoming(body: str) -> tuple[PlannedEvent, ...]:
    """Return maintenance that has a window; `NONE`, `{}` and an error text mean that there is none.

    Raises ValueError.
    """
    if body.strip() in {"NONE", '"NONE"'}:
        return ()
    notice = decode_json(body, dict[str, Any])
    if not notice:
        return ()
    if "error" in notice:
        if "no notifications" not in str(notice["error"]):
            raise ValueError(body)
        return ()
    if not notice.keys() & _FIELDS:
        raise ValueError(body)
    starts, unparsed = parse_start(notice.get("window_start_time"))
    is_started = notice.get("maintenance_status") == "ONGOING"
    return (
        PlannedEvent(
            _UPCOMING,
            describe("Google", _titled(notice), _reasons(notice)),
            starts,
            is_started,
            unparsed_start=unparsed,
        ),
    )


def _titled(notice: dict[str, Any]) -> str:
    kind = notice.get("type")
    return f"{one_line(kind, 40)} maintenance" if isinstance(kind, str) and kind else "maintenance"


def _reasons(notice: dict[str, Any]) -> str:
    reasons = notice.get("maintenance_reasons")
    return ", ".join(map(str, reasons)) if isinstance(reasons, list) else ""


def preempted(body: str) -> tuple[PlannedEvent, ...]:
    """Return the preemption of the machine, which leaves it half a minute. Raises ValueError."""
    preempted = body.strip().upper()
    if preempted not in {"TRUE", "FALSE"}:
        raise ValueError(body)
    return (PlannedEvent("preempt", "Google preemption", is_started=True),) if preempted == "TRUE" else ()


def merge_notices(planned: tuple[PlannedEvent, ...], now: float) -> tuple[PlannedEvent, ...]:
    """Return the events, with an event and the window that opens within its notice merged into one.

    The event gives the kind, the window gives the start. now: seconds since the epoch.
    """
    events = [event for event in planned if event.notice]
    windows = [event for event in planned if event.kind == _UPCOMING]
    if not events or not windows:
        return planned
    first, window = events[0], windows[0]
    if not window.is_started and (window.starts is None or window.starts > now + first.notice):
        return planned
    merged = replace(
        first, starts=window.starts, is_started=window.is_started, unparsed_start=window.unparsed_start
    )
    return (merged, *(other for other in planned if other not in (first, window)))


def _request(path: str) -> MetadataRequest:
    return MetadataRequest(f"/computeMetadata/v1/instance/{path}", {"Metadata-Flavor": "Google"})


GCP = Cloud(
    feeds=(
        Feed(_request("preempted"), preempted),
        Feed(_request("maintenance-event"), event),
        Feed(_request("upcoming-maintenance?alt=json"), upcoming, frozenset((404, 503))),
    ),
    timeout=2.0,
    timeout_hint="a network policy may keep this process from it",
    merge=merge_notices,
)
