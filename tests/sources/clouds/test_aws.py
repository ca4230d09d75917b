from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nodeguard.sources.clouds.aws import AWS, interruption, rebalance, scheduled
from nodeguard.sources.clouds.cloud import PlannedEvent

# AWS EC2 User Guide, scheduled events, their fields with other values.
RETIREMENT = {
    "NotBefore": "21 Sep 2026 09:00:43 GMT",
    "Code": "instance-retirement",
    "Description": "scheduled retirement",
    "EventId": "instance-event-0d59937288b749b32",
    "NotAfter": "21 Sep 2026 11:00:00 GMT",
    "State": "active",
}
AT = 1_789_981_243.0


def test_three_feeds_are_queried_with_a_token() -> None:
    assert [feed.request.path for feed in AWS.feeds] == [
        "/latest/meta-data/spot/instance-action",
        "/latest/meta-data/events/maintenance/scheduled",
        "/latest/meta-data/events/recommendations/rebalance",
    ]
    assert all(feed.request.session and not feed.request.headers for feed in AWS.feeds)


def test_nothing_is_planned() -> None:
    assert scheduled("[]") == ()


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("instance-reboot", "reboot"),
        ("system-reboot", "reboot"),
        ("system-maintenance", "maintenance"),
        ("instance-retirement", "retire"),
        ("instance-stop", "stop"),
        ("instance-levitation", "maintenance"),
    ],
)
def test_each_code_is_a_kind(code: str, kind: str) -> None:
    description = f"AWS {code} (scheduled retirement)"
    assert scheduled(json.dumps([{**RETIREMENT, "Code": code}])) == (PlannedEvent(kind, description, AT),)


@pytest.mark.parametrize(
    "over",
    [
        {"State": "completed"},
        {"State": "canceled"},
        {"Description": "[Completed] x"},
        {"Description": "[Canceled] x"},
    ],
)
def test_completed_events_are_not_planned(over: dict[str, str]) -> None:
    assert scheduled(json.dumps([{**RETIREMENT, **over}, RETIREMENT])) == scheduled(json.dumps([RETIREMENT]))


@pytest.mark.parametrize("action", ["terminate", "stop", "hibernate"])
def test_a_spot_interruption(action: str) -> None:
    body = json.dumps({"action": action, "time": "2026-09-21T09:00:43Z"})
    assert interruption(body) == (PlannedEvent("preempt", f"AWS spot interruption ({action})", AT),)


def test_rebalance_recommendation_has_no_time() -> None:
    assert rebalance('{"noticeTime": "2026-09-18T08:20:00Z"}') == (
        PlannedEvent("rebalance", "AWS rebalance recommendation"),
    )


@pytest.mark.parametrize("body", ["", "{}", "null", "[1]", "<html>", '[{"Code": 1}]', "[{}]", "[" * 100_000])
def test_invalid_document_is_rejected(body: str) -> None:
    for parse in (scheduled, interruption, rebalance):
        with pytest.raises(ValueError):  # noqa: PT011 - whatever it says
            parse(body)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from(sorted(RETIREMENT)), st.none() | st.text() | st.integers()))
def test_any_value_is_parsed_or_rejected(changes: dict[str, object]) -> None:
    try:
        planned = scheduled(json.dumps([{**RETIREMENT, **changes}]))
    except ValueError:
        return
    assert all(event.description.isprintable() for event in planned)
