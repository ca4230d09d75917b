from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nodeguard.sources.clouds.cloud import parse_start

AT = datetime(2026, 9, 19, 18, 29, 47, tzinfo=UTC).timestamp()
MOMENTS = st.integers(0, 10**11).map(lambda seconds: datetime.fromtimestamp(seconds, UTC))


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
def test_each_cloud_writes_it_in_its_own_way(text: str) -> None:
    assert parse_start(text) == (AT, "")


@pytest.mark.parametrize("nothing", [None, ""])
def test_nothing_is_told(nothing: object) -> None:
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
def test_what_makes_no_sense_is_kept_as_it_is(text: str) -> None:
    assert parse_start(text) == (None, text)


def test_a_number_and_a_long_text() -> None:
    assert parse_start(1_700_000_000) == (None, "1700000000")
    assert parse_start("x" * 500) == (None, "x" * 60)
    assert parse_start(" ") == (None, " ".strip())


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(MOMENTS)
def test_any_moment_is_read_back(at: datetime) -> None:
    assert parse_start(at.isoformat().replace("+00:00", "Z")) == (at.timestamp(), "")


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.text() | st.integers() | st.lists(st.integers()))
def test_nothing_breaks_it(value: object) -> None:
    starts, odd = parse_start(value)
    assert starts is None or not odd
