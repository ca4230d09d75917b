"""What a watch asks for next."""

from __future__ import annotations

from itertools import pairwise

import pytest

from nodeguard.kube.course import Course, Step, ended, failed, listed
from nodeguard.kube.refusal import ApiError

UNREACHABLE = ApiError(0, "Unreachable", "")
EXPIRED = ApiError(410, "Expired", "")


def test_a_list_goes_on_as_a_watch() -> None:
    assert Course().step is Step.STREAM
    after = ended(Course(), cursor="7", lasted=280.0)
    assert (after.step, after.cursor, after.failures) == (Step.WATCH, "7", 0)
    assert after.wait <= 0.2


def test_a_list_that_breaks_off_begins_again() -> None:
    assert ended(Course(), cursor="", lasted=9.0).step is Step.STREAM
    assert failed(Course(), "", 9.0, UNREACHABLE).step is Step.STREAM


@pytest.mark.parametrize(
    "error",
    [
        ApiError(422, "Invalid", ""),
        ApiError(400, "BadRequest", ""),
        ApiError(500, "InternalError", ""),
        ApiError(504, "Timeout", ""),
        ApiError(0, "Timeout", ""),
    ],
    ids=lambda error: f"{error.status}",
)
def test_a_server_that_cannot_stream_a_list_gives_it_in_pages(error: ApiError) -> None:
    after = failed(Course(), "", 0.1, error)
    assert (after.step, after.wait) == (Step.PAGES, 0.0)
    then = listed(after, "7")
    assert (then.step, then.cursor, then.wait) == (Step.WATCH, "7", 0.0)


def test_pages_are_for_once() -> None:
    assert failed(Course(paged=True), "", 0.1, UNREACHABLE).step is Step.STREAM
    expired = failed(listed(Course(paged=True), "7"), "8", 60.0, EXPIRED)
    assert expired.step is Step.STREAM


def test_what_is_too_old_is_listed_again() -> None:
    after = failed(Course("7"), "9", 60.0, EXPIRED)
    assert (after.step, after.failures) == (Step.STREAM, 0)


def test_a_watch_that_breaks_goes_on_where_it_was() -> None:
    after = failed(Course("7"), "9", 60.0, UNREACHABLE)
    assert (after.step, after.cursor, after.failures) == (Step.WATCH, "9", 0)
    # A server's own fault after the list is no reason to list again.
    assert failed(Course(), "9", 60.0, ApiError(500, "InternalError", "")).step is Step.WATCH


def test_a_server_that_is_away_is_asked_less_and_less() -> None:
    waits = []
    course = Course("7")
    for _ in range(40):
        course = failed(course, course.cursor, 0.0, UNREACHABLE)
        waits.append(course.wait)
    assert all(before <= after for before, after in pairwise(waits))
    assert (waits[0], waits[-1]) == (0.4, 5.0)
    assert failed(course, "8", 60.0, UNREACHABLE).wait == 0.2


def test_a_watch_that_ends_at_once_is_not_asked_for_without_rest() -> None:
    course = Course("7")
    for _ in range(10):
        course = ended(course, "8", lasted=0.01)
    assert course.wait == 5.0


def test_a_cursor_that_leads_nowhere_is_given_up() -> None:
    course, steps = Course("7"), []
    while course.step is Step.WATCH:
        steps.append(course.step)
        course = failed(course, course.cursor, 3.0, ApiError(504, "Timeout", "Too large resource version"))
    assert len(steps) == 4
    assert course.step is Step.STREAM


def test_a_server_says_when_it_wants_to_be_asked_again() -> None:
    assert failed(Course("7"), "7", 0.0, ApiError(429, "TooManyRequests", "", 30.0)).wait == 30.0
    assert failed(Course("7"), "7", 0.0, ApiError(429, "TooManyRequests", "", 1e9)).wait == 60.0
