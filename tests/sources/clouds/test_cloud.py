from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nodeguard.sources.clouds.cloud import PlannedEvent, parse_start, plan_signals

AT = datetime(2026, 9, 19, 18, 29, 47, tzinfo=UTC).timestamp()
TIMES = st.integers(0, 10**11).map(lambda seconds: datetime.fromtimestamp(seconds, UTC))


@pytest.mark.parametrize(
    "text",
    [
        "Sat, 19 Sep 2026 18:29:47 GMT",
        "19 Sep 2026 18:29:47 GMT",
        "2026-09-19T18:29:47Z",
        "2026-09-19T18:29:47.000Z",
        "2026-09-19T20:29:47+02:00",
        " 2026-09-19T18:29:47Z\n",
    ],
)
def test_start_time_formats_of_each_cloud(text: str) -> None:
    assert parse_start(text) == (AT, "")


@pytest.mark.parametrize("nothing", [None, ""])
def test_empty_documents_have_no_events(nothing: object) -> None:
    assert parse_start(nothing) == (None, "")


@pytest.mark.parametrize(
    "text",
    [
        "soon",
        "2026-09-19",
        "2026-09-19T18:29:47",
        "2026-13-19T18:29:47Z",
        "31 Feb 2026 09:00:43 GMT",
        "21 Foo 2026 09:00:43 GMT",
        "21 Sep 0000 09:00:43 GMT",
        "21 Sep 2026 09:00:43 CET",
        "21 Sep 2026 29:00:43 GMT",
        "٢١ Sep 2026 09:00:43 GMT",
    ],
)
def test_invalid_start_is_kept_as_text(text: str) -> None:
    assert parse_start(text) == (None, text)


def test_number_and_long_text_are_kept_as_short_text() -> None:
    assert parse_start(1_700_000_000) == (None, "1700000000")
    assert parse_start("x" * 500) == (None, "x" * 60)
    assert parse_start(" ") == (None, " ".strip())


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(TIMES)
def test_any_time_is_parsed(at: datetime) -> None:
    assert parse_start(at.isoformat().replace("+00:00", "Z")) == (at.timestamp(), "")


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.text() | st.integers() | st.lists(st.integers()))
def test_parse_start_accepts_any_value(value: object) -> None:
    starts, odd = parse_start(value)
    assert starts is None or not odd


NOW = 1_800_000_000.0  # 2027-01-15 08:00:00 UTC


def reboot(**fields: Any) -> PlannedEvent:
    return PlannedEvent("reboot", "a reboot", **fields)


@pytest.mark.parametrize(
    ("planned", "when", "left"),
    [
        (reboot(starts=NOW + 90), "not before 2027-01-15 08:01:30 UTC", 90.0),
        (reboot(starts=NOW - 60), "due since 2027-01-15 07:59:00 UTC", 0.0),
        (reboot(starts=NOW + 90, is_started=True), "in progress", 0.0),
        (reboot(notice=3600.0), "within 60 min", None),
        (reboot(), "at an unknown time", None),
        (reboot(unparsed_start="soon"), "at 'soon'", None),
    ],
)
def test_time_of_the_next_event_is_reported(planned: PlannedEvent, when: str, left: float | None) -> None:
    signals, unread = plan_signals((planned,), NOW)
    assert signals["maintenance.when"] == when
    assert signals.get("maintenance.starts_in") == left
    assert unread == ({"maintenance.starts_in": "the start is 'soon'"} if planned.unparsed_start else {})


def test_first_event_is_shown_and_the_others_are_counted() -> None:
    begun = PlannedEvent("freeze", "one that has begun", is_started=True)
    soon, late = reboot(starts=NOW + 60), PlannedEvent("retire", "a retirement", NOW + 86_400)
    vague = PlannedEvent("terminate", "an end", notice=3600.0)
    risk = PlannedEvent("rebalance", "a risk")
    order = [begun, soon, vague, late, risk]
    for number, first in enumerate(order):
        rest = tuple(reversed(order[number:]))
        signals, _ = plan_signals(rest, NOW)
        more = f", the first of {len(rest)}" if len(rest) > 1 else ""
        assert (signals["maintenance.kind"], signals["maintenance.what"]) == (
            first.kind,
            first.description + more,
        )
        assert signals["maintenance.pending"] is True
