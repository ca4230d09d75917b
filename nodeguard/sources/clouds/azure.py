"""Azure: scheduled events, read and never acknowledged. Pure.

Source: Microsoft Learn, "Scheduled Events for Linux VMs in Azure" and "Azure Instance Metadata Service".
"""

from __future__ import annotations

from typing import Any

from nodeguard.sources.clouds.cloud import (
    Cloud,
    Feed,
    PlannedEvent,
    decode_json,
    describe,
    parse_start,
    required_text,
)
from nodeguard.sources.machine import MetadataRequest

_HEADERS = {"Metadata": "true"}
_KINDS = {
    "Freeze": "freeze",
    "Reboot": "reboot",
    "Redeploy": "redeploy",
    "Preempt": "preempt",
    "Terminate": "terminate",
}


def scheduled(body: str) -> tuple[PlannedEvent, ...]:
    """Return the scheduled events of a document, those of other machines too. Raises ValueError."""
    events = decode_json(body, dict[str, Any]).get("Events")
    if not isinstance(events, list):
        raise ValueError(body)  # noqa: TRY004 - the document is invalid, not the argument
    return tuple(_event(event) for event in events)


def _event(event: Any) -> PlannedEvent:
    """Return one event. It has no end time: Azure lists it until it is done."""
    if not isinstance(event, dict):
        raise ValueError(event)  # noqa: TRY004
    machines = event.get("Resources")
    if (
        not isinstance(machines, list)
        or not machines
        or not all(isinstance(machine, str) for machine in machines)
    ):
        raise ValueError(event)
    event_type = required_text(event, "EventType")
    starts, unparsed = parse_start(event.get("NotBefore"))
    return PlannedEvent(
        _KINDS.get(event_type, "maintenance"),
        describe("Azure", event_type, event.get("Description")),
        starts,
        is_started=event.get("EventStatus") == "Started",
        machines=tuple(machines),
        unparsed_start=unparsed,
    )


AZURE = Cloud(
    feeds=(Feed(MetadataRequest("/metadata/scheduledevents?api-version=2020-07-01", _HEADERS), scheduled),),
    timeout=5.0,
    timeout_hint="Azure turns the service on at the first request, which can take two minutes",
    name_request=MetadataRequest(
        "/metadata/instance/compute/name?api-version=2021-02-01&format=text", _HEADERS
    ),
)
