"""Azure's scheduled events, read and never acknowledged. Pure.

Source: Microsoft Learn, "Scheduled Events for Linux VMs in Azure" and "Azure Instance Metadata Service".
"""

from __future__ import annotations

from typing import Any

from nodeguard.sources.clouds.cloud import Cloud, Feed, Planned, document, field, named
from nodeguard.sources.clouds.moments import moment
from nodeguard.sources.request import Request

_HEADERS = {"Metadata": "true"}
_KINDS = {
    "Freeze": "freeze",
    "Reboot": "reboot",
    "Redeploy": "redeploy",
    "Preempt": "preempt",
    "Terminate": "terminate",
}


def scheduled(body: str) -> tuple[Planned, ...]:
    """Plans of a document of scheduled events, also those of other machines. Raises ValueError."""
    events = document(body, dict[str, Any]).get("Events")
    if not isinstance(events, list):
        raise ValueError(body)  # noqa: TRY004 - it is the answer that makes no sense
    return tuple(_event(event) for event in events)


def _event(event: Any) -> Planned:
    """One event. It has no end of its own: once done, it is not listed any more."""
    if not isinstance(event, dict):
        raise ValueError(event)  # noqa: TRY004
    machines = event.get("Resources")
    if not isinstance(machines, list) or not machines or not all(isinstance(one, str) for one in machines):
        raise ValueError(event)
    word = field(event, "EventType")
    starts, odd = moment(event.get("NotBefore"))
    return Planned(
        _KINDS.get(word, "maintenance"),
        named("Azure", word, event.get("Description")),
        starts,
        begun=event.get("EventStatus") == "Started",
        machines=tuple(machines),
        odd=odd,
    )


AZURE = Cloud(
    feeds=(Feed(Request("/metadata/scheduledevents?api-version=2020-07-01", _HEADERS), scheduled),),
    within=5.0,
    silence="Azure turns the service on at the first request, which can take two minutes",
    own_name=Request("/metadata/instance/compute/name?api-version=2021-02-01&format=text", _HEADERS),
)
