"""AWS: scheduled events, spot interruptions and rebalance recommendations of an instance. Pure.

Source: AWS EC2 User Guide, instance metadata categories, scheduled events, spot instance interruption
notices, rebalance recommendations.
"""

from __future__ import annotations

from typing import Any

from nodeguard.sources.clouds.cloud import (
    Cloud,
    Feed,
    PlannedEvent,
    decode_json,
    describe,
    one_line,
    parse_start,
    required_text,
)
from nodeguard.sources.machine import MetadataRequest

_KINDS = {
    "instance-reboot": "reboot",
    "system-reboot": "reboot",
    "system-maintenance": "maintenance",
    "instance-retirement": "retire",
    "instance-stop": "stop",
}
# Prefixes of the description of an event that is over, even if its state differs.
_OVER = ("[Completed]", "[Canceled]")
_EMPTY = frozenset((404,))


def scheduled(body: str) -> tuple[PlannedEvent, ...]:
    """Return the scheduled events that are not over. Raises ValueError."""
    events = decode_json(body, list[dict[str, Any]])
    return tuple(_event(event) for event in events if not _is_over(event))


def _is_over(event: dict[str, Any]) -> bool:
    over = str(event.get("Description", "")).startswith(_OVER)
    return over or event.get("State") in {"completed", "canceled"}


def _event(event: dict[str, Any]) -> PlannedEvent:
    code = required_text(event, "Code")
    starts, unparsed = parse_start(event.get("NotBefore"))
    description = describe("AWS", code, event.get("Description"))
    return PlannedEvent(_KINDS.get(code, "maintenance"), description, starts, unparsed_start=unparsed)


def interruption(body: str) -> tuple[PlannedEvent, ...]:
    """Return the announced end of a spot instance. Raises ValueError."""
    notice = decode_json(body, dict[str, Any])
    starts, unparsed = parse_start(notice.get("time"))
    return (
        PlannedEvent(
            "preempt",
            f"AWS spot interruption ({one_line(required_text(notice, 'action'), 60)})",
            starts,
            unparsed_start=unparsed,
        ),
    )


def rebalance(body: str) -> tuple[PlannedEvent, ...]:
    """Return a raised risk of interruption. It has no start: its time is the notice's. Raises ValueError."""
    required_text(decode_json(body, dict[str, Any]), "noticeTime")
    return (PlannedEvent("rebalance", "AWS rebalance recommendation"),)


def _request(path: str) -> MetadataRequest:
    return MetadataRequest(f"/latest/meta-data/{path}", session=True)


AWS = Cloud(
    feeds=(
        Feed(_request("spot/instance-action"), interruption, _EMPTY),
        Feed(_request("events/maintenance/scheduled"), scheduled),
        Feed(_request("events/recommendations/rebalance"), rebalance, _EMPTY),
    ),
    timeout=2.0,
    timeout_hint="in a container without the host's network it takes a hop limit of 2",
)
