from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from nodeguard.model.instant import rfc3339

LAST = 253_402_300_799


@given(st.integers(0, LAST))
def test_a_moment_is_written_as_the_calendar_has_it(wall: int) -> None:
    assert rfc3339(wall) == time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(wall)).rjust(20, "0")


def test_leap_years_and_ends_of_years_are_kept() -> None:
    assert rfc3339(951_782_400) == "2000-02-29T00:00:00Z"
    assert rfc3339(1_735_689_599) == "2024-12-31T23:59:59Z"
    assert rfc3339(1_735_603_200) == "2024-12-31T00:00:00Z"
    assert rfc3339(4_107_542_400) == "2100-03-01T00:00:00Z"


def test_what_no_calendar_has_is_the_nearest_that_one_has() -> None:
    assert rfc3339(-5.0) == "1970-01-01T00:00:00Z"
    assert rfc3339(1e18) == "9999-12-31T23:59:59Z"
