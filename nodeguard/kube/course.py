"""What a watch asks for next, and when. Pure."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.kube.refusal import ApiError

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


class Step(StrEnum):
    """`stream`: a list that goes on as a watch; `pages`: a list alone; `watch`: go on from the cursor."""

    STREAM = "stream"
    PAGES = "pages"
    WATCH = "watch"


class Course(Struct, frozen=True):
    """Where a watch stands.

    cursor: resourceVersion up to which all is known, empty where nothing is. paged: the list is to come in
    pages this once. failures: in a row. wait: seconds until the next step, before jitter.
    """

    cursor: str = ""
    paged: bool = False
    failures: int = 0
    wait: float = 0.0

    @property
    def step(self) -> Step:
        """What to ask for next."""
        if self.cursor:
            return Step.WATCH
        return Step.PAGES if self.paged else Step.STREAM


def ended(course: Course, cursor: str, lasted: float) -> Course:
    """The course after the server has ended a connection in good order.

    cursor: up to which version it told all; lasted: for how many seconds.
    """
    return _after(course, cursor, lasted)


def listed(course: Course, cursor: str) -> Course:
    """The course after a list in pages, which is of version `cursor`."""
    return replace(course, cursor=cursor, paged=False, wait=0.0)


def failed(course: Course, cursor: str, lasted: float, error: ApiError) -> Course:
    """The course after an error; cursor and lasted as of `ended`."""
    if course.step is Step.STREAM and not cursor and _cannot_stream(error):
        return replace(course, paged=True, wait=0.0)
    # What is that old is forgotten: all has to be listed again.
    is_lost = error.status == 410 or (error.status in _CANNOT and course.failures >= _OFTEN)
    after = _after(course, "" if is_lost else cursor, lasted)
    return replace(after, wait=max(after.wait, min(_LEFT_ALONE, error.retry_after or 0.0)))


def _after(course: Course, cursor: str, lasted: float) -> Course:
    failures = 0 if lasted >= _GOOD else course.failures + 1
    wait = min(_LONGEST, _FIRST * 2.0 ** min(failures, 16))
    return Course(cursor, paged=False, failures=failures, wait=wait)


def _cannot_stream(error: ApiError) -> bool:
    return error.status in _CANNOT or (error.status == 0 and error.reason == "Timeout")
