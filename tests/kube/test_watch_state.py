"""State machine of a watch: the next request and its delay."""

from __future__ import annotations

from itertools import pairwise

import pytest

from nodeguard.kube.errors import ApiError
from nodeguard.kube.watch_state import WatchMode, WatchState, connection_ended, list_completed, request_failed

UNREACHABLE = ApiError(0, "Unreachable", "")
EXPIRED = ApiError(410, "Expired", "")


def test_a_watch_follows_a_list() -> None:
    assert WatchState().mode is WatchMode.STREAM
    after = connection_ended(WatchState(), cursor="7", duration=280.0)
    assert (after.mode, after.cursor, after.failures) == (WatchMode.WATCH, "7", 0)
    assert after.wait <= 0.2


def test_an_incomplete_list_begins_again() -> None:
    assert connection_ended(WatchState(), cursor="", duration=9.0).mode is WatchMode.STREAM
    assert request_failed(WatchState(), "", 9.0, UNREACHABLE).mode is WatchMode.STREAM


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
def test_pages_are_used_without_streamed_lists(error: ApiError) -> None:
    after = request_failed(WatchState(), "", 0.1, error)
    assert (after.mode, after.wait) == (WatchMode.PAGES, 0.0)
    then = list_completed(after, "7")
    assert (then.mode, then.cursor, then.wait) == (WatchMode.WATCH, "7", 0.0)


def test_pages_are_used_for_one_list() -> None:
    assert request_failed(WatchState(list_in_pages=True), "", 0.1, UNREACHABLE).mode is WatchMode.STREAM
    expired = request_failed(list_completed(WatchState(list_in_pages=True), "7"), "8", 60.0, EXPIRED)
    assert expired.mode is WatchMode.STREAM


def test_an_expired_cursor_leads_to_a_list() -> None:
    after = request_failed(WatchState("7"), "9", 60.0, EXPIRED)
    assert (after.mode, after.failures) == (WatchMode.STREAM, 0)


def test_a_broken_watch_continues_at_its_cursor() -> None:
    after = request_failed(WatchState("7"), "9", 60.0, UNREACHABLE)
    assert (after.mode, after.cursor, after.failures) == (WatchMode.WATCH, "9", 0)
    # A server's own fault after the list is no reason to list again.
    assert request_failed(WatchState(), "9", 60.0, ApiError(500, "InternalError", "")).mode is WatchMode.WATCH


def test_retries_back_off() -> None:
    waits = []
    course = WatchState("7")
    for _ in range(40):
        course = request_failed(course, course.cursor, 0.0, UNREACHABLE)
        waits.append(course.wait)
    assert all(before <= after for before, after in pairwise(waits))
    assert (waits[0], waits[-1]) == (0.4, 5.0)
    assert request_failed(course, "8", 60.0, UNREACHABLE).wait == 0.2


def test_a_watch_that_ends_at_once_is_retried_after_a_delay() -> None:
    course = WatchState("7")
    for _ in range(10):
        course = connection_ended(course, "8", duration=0.01)
    assert course.wait == 5.0


def test_a_cursor_that_never_works_is_dropped() -> None:
    course, steps = WatchState("7"), []
    while course.mode is WatchMode.WATCH:
        steps.append(course.mode)
        course = request_failed(
            course, course.cursor, 3.0, ApiError(504, "Timeout", "Too large resource version")
        )
    assert len(steps) == 4
    assert course.mode is WatchMode.STREAM


def test_the_delay_of_the_server_is_respected() -> None:
    assert request_failed(WatchState("7"), "7", 0.0, ApiError(429, "TooManyRequests", "", 30.0)).wait == 30.0
    assert request_failed(WatchState("7"), "7", 0.0, ApiError(429, "TooManyRequests", "", 1e9)).wait == 60.0
