"""What AWS tells an instance of events, of the end of a spot instance, and of a raised risk of that. Pure.

Source: AWS EC2 User Guide, instance metadata categories, scheduled events, spot instance interruption
notices, rebalance recommendations.
"""

from __future__ import annotations

from typing import Any

from nodeguard.sources.clouds.cloud import Cloud, Feed, Planned, document, field, named, plain
from nodeguard.sources.clouds.moments import moment
from nodeguard.sources.request import Request

_KINDS = {
    "instance-reboot": "reboot",
    "system-reboot": "reboot",
    "system-maintenance": "maintenance",
    "instance-retirement": "retire",
    "instance-stop": "stop",
}
# How the description of an event begins that is over, whatever its state says.
_OVER = ("[Completed]", "[Canceled]")
_NONE = frozenset((404,))


def scheduled(body: str) -> tuple[Planned, ...]:
    """Plans of the list of scheduled events that are still to come or under way. Raises ValueError."""
    events = document(body, list[dict[str, Any]])
    return tuple(_event(event) for event in events if not _is_over(event))


def _is_over(event: dict[str, Any]) -> bool:
    over = str(event.get("Description", "")).startswith(_OVER)
    return over or event.get("State") in {"completed", "canceled"}


def _event(event: dict[str, Any]) -> Planned:
    code = field(event, "Code")
    starts, odd = moment(event.get("NotBefore"))
    what = named("AWS", code, event.get("Description"))
    return Planned(_KINDS.get(code, "maintenance"), what, starts, odd=odd)


def interruption(body: str) -> tuple[Planned, ...]:
    """The end of a spot instance, where one is told. Raises ValueError."""
    notice = document(body, dict[str, Any])
    starts, odd = moment(notice.get("time"))
    return (
        Planned("preempt", f"AWS spot interruption ({plain(field(notice, 'action'), 60)})", starts, odd=odd),
    )


def rebalance(body: str) -> tuple[Planned, ...]:
    """A raised risk of interruption, which is no plan: its moment is the notice's. Raises ValueError."""
    field(document(body, dict[str, Any]), "noticeTime")
    return (Planned("rebalance", "AWS rebalance recommendation"),)


def _request(path: str) -> Request:
    return Request(f"/latest/meta-data/{path}", session=True)


AWS = Cloud(
    feeds=(
        Feed(_request("spot/instance-action"), interruption, _NONE),
        Feed(_request("events/maintenance/scheduled"), scheduled),
        Feed(_request("events/recommendations/rebalance"), rebalance, _NONE),
    ),
    within=2.0,
    silence="in a container without the host's network it takes a hop limit of 2",
)
