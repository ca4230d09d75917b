"""State machine of a watch: the next request, and the delay before it. Pure."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.kube.errors import ApiError
from nodeguard.local.backoff import backoff

# Seconds after which a connection that ends counts as healthy, and seconds between retries.
_HEALTHY_SECONDS = 5.0
_FIRST_DELAY = 0.2
_MAX_DELAY = 5.0

# The longest delay that a server may request, in seconds.
_MAX_RETRY_AFTER = 60.0

# Responses of a server that cannot serve the request: it does not implement it, its backend failed, or the
# cursor is from a future that a restored backup does not have. After so many in a row, the list starts again.
_UNSUPPORTED = frozenset({400, 422, 500, 504})
_MAX_UNSUPPORTED = 3


class WatchMode(StrEnum):
    """`stream`: a list that continues as a watch; `pages`: a list only; `watch`: continue at the cursor."""

    STREAM = "stream"
    PAGES = "pages"
    WATCH = "watch"


class WatchState(Struct, frozen=True):
    """State of a watch between two connections.

    cursor: resourceVersion up to which all changes were received, empty for none. list_in_pages: the next
    list comes in pages. failures: connections in a row that ended early. wait: seconds until the next
    request, before jitter.
    """

    cursor: str = ""
    list_in_pages: bool = False
    failures: int = 0
    wait: float = 0.0

    @property
    def mode(self) -> WatchMode:
        """The next request."""
        if self.cursor:
            return WatchMode.WATCH
        return WatchMode.PAGES if self.list_in_pages else WatchMode.STREAM


def connection_ended(state: WatchState, cursor: str, duration: float) -> WatchState:
    """Return the state after the server closed a connection in good order.

    cursor: resourceVersion up to which the connection delivered all changes; duration: of it, in seconds.
    """
    return _after(state, cursor, duration)


def list_completed(state: WatchState, cursor: str) -> WatchState:
    """Return the state after a list in pages, which is of version `cursor`."""
    return replace(state, cursor=cursor, list_in_pages=False, wait=0.0)


def request_failed(state: WatchState, cursor: str, duration: float, error: ApiError) -> WatchState:
    """Return the state after an error; cursor and duration as in `connection_ended`."""
    if state.mode is WatchMode.STREAM and not cursor and _cannot_stream(error):
        return replace(state, list_in_pages=True, wait=0.0)
    # The server no longer has this version: the list starts again.
    is_lost = error.status == 410 or (error.status in _UNSUPPORTED and state.failures >= _MAX_UNSUPPORTED)
    after = _after(state, "" if is_lost else cursor, duration)
    return replace(after, wait=max(after.wait, min(_MAX_RETRY_AFTER, error.retry_after or 0.0)))


def _after(state: WatchState, cursor: str, duration: float) -> WatchState:
    failures = 0 if duration >= _HEALTHY_SECONDS else state.failures + 1
    wait = backoff(failures, _FIRST_DELAY, _MAX_DELAY)
    return WatchState(cursor, list_in_pages=False, failures=failures, wait=wait)


def _cannot_stream(error: ApiError) -> bool:
    return error.status in _UNSUPPORTED or (error.status == 0 and error.reason == "Timeout")
