"""What a watch asks for next, and when. Pure."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.kube.errors import ApiError

# Seconds after which a connection that ends had been a good one, and seconds between tries.
_GOOD = 5.0
_FIRST = 0.2
_LONGEST = 5.0

# Seconds that a server may ask to be left alone for.
_LEFT_ALONE = 60.0

# What a server says of a question that it cannot answer: it does not know how, or what stands behind it does
# not; or what the cursor says was never so, as after a restored backup. So many times in a row, then all is
# listed again.
_CANNOT = frozenset({400, 422, 500, 504})
_OFTEN = 3


class WatchMode(StrEnum):
    """`stream`: a list that goes on as a watch; `pages`: a list alone; `watch`: go on from the cursor."""

    STREAM = "stream"
    PAGES = "pages"
    WATCH = "watch"


class WatchState(Struct, frozen=True):
    """Where a watch stands.

    cursor: resourceVersion up to which all is known, empty where nothing is. paged: the list is to come in
    pages this once. failures: in a row. wait: seconds until the next step, before jitter.
    """

    cursor: str = ""
    list_in_pages: bool = False
    failures: int = 0
    wait: float = 0.0

    @property
    def mode(self) -> WatchMode:
        """What to ask for next."""
        if self.cursor:
            return WatchMode.WATCH
        return WatchMode.PAGES if self.list_in_pages else WatchMode.STREAM


def connection_ended(state: WatchState, cursor: str, duration: float) -> WatchState:
    """The course after the server has ended a connection in good order.

    cursor: up to which version it told all; lasted: for how many seconds.
    """
    return _after(state, cursor, duration)


def list_completed(state: WatchState, cursor: str) -> WatchState:
    """The course after a list in pages, which is of version `cursor`."""
    return replace(state, cursor=cursor, paged=False, wait=0.0)


def request_failed(state: WatchState, cursor: str, duration: float, error: ApiError) -> WatchState:
    """The course after an error; cursor and lasted as of `ended`."""
    if state.mode is WatchMode.STREAM and not cursor and _cannot_stream(error):
        return replace(state, paged=True, wait=0.0)
    # What is that old is forgotten: all has to be listed again.
    is_lost = error.status == 410 or (error.status in _CANNOT and state.failures >= _OFTEN)
    after = _after(state, "" if is_lost else cursor, duration)
    return replace(after, wait=max(after.wait, min(_LEFT_ALONE, error.retry_after or 0.0)))


def _after(course: WatchState, cursor: str, lasted: float) -> WatchState:
    failures = 0 if lasted >= _GOOD else course.failures + 1
    wait = min(_LONGEST, _FIRST * 2.0 ** min(failures, 16))
    return WatchState(cursor, list_in_pages=False, failures=failures, wait=wait)


def _cannot_stream(error: ApiError) -> bool:
    return error.status in _CANNOT or (error.status == 0 and error.reason == "Timeout")
