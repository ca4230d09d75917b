from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeguard.model.instant import (
    Instant,
    parse_http_date,
    parse_or_zero,
    parse_rfc3339,
    precise_rfc3339,
    rfc3339,
)

LAST = 253_402_300_799


@given(st.integers(0, LAST))
def test_time_is_written_as_rfc3339(wall: int) -> None:
    assert rfc3339(wall) == time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(wall)).rjust(20, "0")


def test_leap_years_and_ends_of_years_are_kept() -> None:
    assert rfc3339(951_782_400) == "2000-02-29T00:00:00Z"
    assert rfc3339(1_735_689_599) == "2024-12-31T23:59:59Z"
    assert rfc3339(1_735_603_200) == "2024-12-31T00:00:00Z"
    assert rfc3339(4_107_542_400) == "2100-03-01T00:00:00Z"


def test_what_no_calendar_has_is_the_nearest_that_one_has() -> None:
    assert rfc3339(-5.0) == "1970-01-01T00:00:00Z"
    assert rfc3339(1e18) == "9999-12-31T23:59:59Z"


@given(st.integers(0, LAST))
def test_a_timestamp_is_parsed_to_the_same_time(wall: int) -> None:
    assert parse_rfc3339(rfc3339(wall)) == wall
    assert parse_or_zero(rfc3339(wall)) == wall
    assert parse_rfc3339(precise_rfc3339(wall)) == wall


@pytest.mark.parametrize(
    ("text", "wall"),
    [
        ("2026-11-21T09:12:33.25Z", 1_795_252_353.25),
        ("2026-11-21t10:12:33+01:00", 1_795_252_353.0),
        ("2026-11-21 09:12:33z", 1_795_252_353.0),
    ],
)
def test_forms_of_rfc_3339(text: str, wall: float) -> None:
    assert parse_rfc3339(text) == wall


@pytest.mark.parametrize("text", ["", "2026-11-21", "2026-11-21T09:12:33", "2026-13-21T09:12:33Z", 5, None])
def test_anything_else_is_rejected(text: object) -> None:
    with pytest.raises(ValueError, match=r".*"):
        parse_rfc3339(text)


def test_the_two_clocks_of_an_instant_convert_into_each_other() -> None:
    now = Instant(wall=1_000.0, mono=50.0, boot_id="b")
    assert (now.wall_of(40.0), now.mono_of(990.0)) == (990.0, 40.0)


def test_an_http_date_needs_no_weekday() -> None:
    assert parse_http_date("Sat, 21 Nov 2026 09:12:33 GMT") == 1_795_252_353.0
    assert parse_http_date("21 Nov 2026 09:12:33 GMT") == 1_795_252_353.0
    with pytest.raises(ValueError, match="CET"):
        parse_http_date("21 Nov 2026 09:12:33 CET")
