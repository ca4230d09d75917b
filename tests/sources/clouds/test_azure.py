from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nodeguard.sources.clouds.azure import AZURE, scheduled
from nodeguard.sources.clouds.cloud import PlannedEvent

# Microsoft Learn, "Scheduled Events for Linux VMs in Azure", its fields with other values.
REDEPLOY = {
    "EventId": "0F1E2D3C-1111-2222-3333-444455556666",
    "EventType": "Redeploy",
    "ResourceType": "VirtualMachine",
    "Resources": ["gpu-vmss_12"],
    "EventStatus": "Scheduled",
    "NotBefore": "Sat, 19 Sep 2026 18:29:47 GMT",
    "Description": "Host hardware degraded",
    "EventSource": "Platform",
    "DurationInSeconds": -1,
}
AT = 1_789_842_587.0


# A machine of Azure's, which has nothing to fear.
FILES = {"/sys/class/dmi/id/chassis_asset_tag": "7783-7084-3265-9085-8269-3286-77\n"}
CALLS = {AZURE.feeds[0].request.call: {"status": 200, "body": '{"DocumentIncarnation":8,"Events":[]}'}}


def document(*events: Any) -> str:
    return json.dumps({"DocumentIncarnation": 7, "Events": events})


def test_feeds_request_only_events_and_the_own_name() -> None:
    assert [feed.request.call for feed in AZURE.feeds] == [
        "http(GET http://169.254.169.254/metadata/scheduledevents?api-version=2020-07-01)"
    ]
    assert AZURE.name_request is not None
    assert AZURE.name_request.path.startswith("/metadata/instance/compute/name?")


def test_nothing_is_planned() -> None:
    assert scheduled(document()) == ()


def test_a_redeploy() -> None:
    description = "Azure Redeploy (Host hardware degraded)"
    assert scheduled(document(REDEPLOY)) == (
        PlannedEvent("redeploy", description, AT, machines=("gpu-vmss_12",)),
    )


def test_started_event_has_no_time() -> None:
    event = {**REDEPLOY, "EventStatus": "Started", "NotBefore": ""}
    [planned] = scheduled(document(event))
    assert (planned.is_started, planned.starts, planned.unparsed_start) == (True, None, "")


@pytest.mark.parametrize("event_type", ["Freeze", "Reboot", "Redeploy", "Preempt", "Terminate"])
def test_each_type_is_a_kind(event_type: str) -> None:
    [planned] = scheduled(document({**REDEPLOY, "EventType": event_type, "Description": None}))
    assert (planned.kind, planned.description) == (event_type.lower(), f"Azure {event_type}")


def test_a_type_that_is_not_known_is_maintenance() -> None:
    [planned] = scheduled(document({**REDEPLOY, "EventType": "Levitate"}))
    assert (planned.kind, planned.description) == ("maintenance", "Azure Levitate (Host hardware degraded)")


def test_invalid_time_is_shown_unchanged() -> None:
    [planned] = scheduled(document({**REDEPLOY, "NotBefore": "tomorrow"}))
    assert (planned.starts, planned.unparsed_start) == (None, "tomorrow")


def test_text_is_shown_on_one_line_and_cut() -> None:
    [planned] = scheduled(document({**REDEPLOY, "Description": "a\nb\x1b[31m " + "x" * 999}))
    assert planned.description.isprintable()
    assert planned.description.startswith("Azure Redeploy (a b [31m xxx")
    assert len(planned.description) < 200


@pytest.mark.parametrize(
    "body",
    [
        "",
        "<html>",
        "[]",
        "{}",
        "null",
        '{"Events": {}}',
        '{"Events": null}',
        document("x"),
        document({**REDEPLOY, "EventType": 7}),
        document({**REDEPLOY, "EventType": " "}),
        document({**REDEPLOY, "Resources": "gpu-vmss_12"}),
        document({**REDEPLOY, "Resources": []}),
        document({**REDEPLOY, "Resources": [1]}),
        "[" * 100_000,
    ],
)
def test_invalid_document_is_rejected(body: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - whatever it says
        scheduled(body)


VALUES = st.none() | st.text() | st.integers() | st.lists(st.text())


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from(sorted(REDEPLOY)), VALUES))
def test_any_value_is_parsed_or_rejected(changes: dict[str, object]) -> None:
    try:
        planned = scheduled(document({**REDEPLOY, **changes}))
    except ValueError:
        return
    assert all(event.description.isprintable() for event in planned)
