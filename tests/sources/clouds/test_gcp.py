from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nodeguard.sources.clouds.cloud import Feed, PlannedEvent
from nodeguard.sources.clouds.gcp import GCP, event, merge_notices, preempted, upcoming
from nodeguard.sources.machine import MetadataResponse

# Google Cloud's documentation of upcoming-maintenance, its fields with other values.
UPCOMING = {
    "type": "SCHEDULED",
    "maintenance_status": "PENDING",
    "can_reschedule": "true",
    "window_start_time": "2026-09-18T08:00:00Z",
    "window_end_time": "2026-09-18T12:00:00Z",
    "latest_window_start_time": "2026-09-25T08:00:00Z",
    "maintenance_reasons": ["PLANNED_UPDATE"],
}
AT = 1_789_718_400.0
WINDOW = PlannedEvent("maintenance", "Google SCHEDULED maintenance (PLANNED_UPDATE)", AT)
TERMINATE = PlannedEvent("terminate", "Google TERMINATE_ON_HOST_MAINTENANCE", notice=3600.0)


def feed(path: str) -> Feed:
    return next(feed for feed in GCP.feeds if path in feed.request.path)


@pytest.mark.parametrize(
    "response",
    [
        MetadataResponse(200, "{}"),
        MetadataResponse(200, "NONE"),
        MetadataResponse(200, '"NONE"\n'),
        MetadataResponse(200, '{"error":"no notifications have been received yet, try again later"}'),
        MetadataResponse(503),
        MetadataResponse(404),
    ],
)
def test_all_documented_forms_of_no_window(response: MetadataResponse) -> None:
    assert feed("upcoming-maintenance").parse_response(response) == ()


def test_other_feeds_have_their_own_forms_of_no_event() -> None:
    assert (event("NONE\n"), preempted("FALSE")) == ((), ())
    assert (
        feed("maintenance-event").parse_response(MetadataResponse(503))
        == "cannot answer at present (HTTP 503)"
    )
    assert feed("maintenance-event").parse_response(MetadataResponse(404)) is None


def test_a_window() -> None:
    assert upcoming(json.dumps(UPCOMING)) == (WINDOW,)


def test_a_window_that_is_open() -> None:
    [planned] = upcoming(json.dumps({**UPCOMING, "maintenance_status": "ONGOING"}))
    assert planned.is_started


def test_window_with_only_the_required_fields() -> None:
    assert upcoming('{"type": "MULTIPLE"}') == (PlannedEvent("maintenance", "Google MULTIPLE maintenance"),)


def test_events() -> None:
    migrate = PlannedEvent("migrate", "Google MIGRATE_ON_HOST_MAINTENANCE", notice=60.0)
    assert event("TERMINATE_ON_HOST_MAINTENANCE") == (TERMINATE,)
    assert event("MIGRATE_ON_HOST_MAINTENANCE\n") == (migrate,)


def test_preempted() -> None:
    assert preempted("TRUE\n") == (PlannedEvent("preempt", "Google preemption", is_started=True),)


@pytest.mark.parametrize("body", ["", "<html>", "[]", "null", "maybe", '{"error": "not you"}', '{"a": 1}'])
def test_invalid_document_is_rejected(body: str) -> None:
    for parse in (event, upcoming, preempted):
        with pytest.raises(ValueError):  # noqa: PT011 - whatever it says
            parse(body)


def test_an_event_and_its_window_are_one() -> None:
    both = (TERMINATE, WINDOW)
    assert merge_notices(both, AT - 1800) == (
        PlannedEvent("terminate", TERMINATE.description, AT, notice=3600.0),
    )
    assert merge_notices(both, AT - 7200) == both
    assert merge_notices((TERMINATE,), AT) == (TERMINATE,)
    assert merge_notices((WINDOW,), AT) == (WINDOW,)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from(sorted(UPCOMING)), st.none() | st.text() | st.integers()))
def test_any_value_is_parsed_or_rejected(changes: dict[str, object]) -> None:
    try:
        planned = upcoming(json.dumps({**UPCOMING, **changes}))
    except ValueError:
        return
    assert all(feed.description.isprintable() for feed in planned)
