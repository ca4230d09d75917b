"""Feeds of planned events, common to all clouds: from the query of the metadata service to the signals."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from nodeguard.model.failure import UnansweredError
from nodeguard.model.instant import parse_http_date, parse_rfc3339
from nodeguard.model.json_decoder import JsonDecoder
from nodeguard.model.signal import Scalar
from nodeguard.sources.machine import ADDRESS, ANSWER_LIMIT, Machine, MetadataRequest, MetadataResponse
from nodeguard.sources.readings import failure_reason

_SHOWN = 160

Shape = TypeVar("Shape")

# Meaning of a status other than 200. Source: HTTP; Azure documents 410 as an update of its service; all three
# clouds document 429 and 503 as temporary.
_STATUS_REASONS = {
    401: "refuses to answer (HTTP 401)",
    403: "refuses to answer (HTTP 403): it may be turned off for this machine",
    410: "is gone for now (HTTP 410), as while it is updated",
    429: "is asked too often (HTTP 429), perhaps by others, too",
    503: "cannot answer at present (HTTP 503)",
}

# Reason by error; for any other error the system's own text is used.
_ERROR_REASONS = {
    errno.EPROTO: "does not answer in valid HTTP",
    errno.EMSGSIZE: f"answers with more than {ANSWER_LIMIT >> 10} KiB",
    errno.EKEYREJECTED: "issues no session token",
    errno.ENOSYS: "was not recorded",
}


class PlannedEvent(Struct, frozen=True):
    """Something that a cloud will do to a machine.

    kind: freeze, reboot, redeploy, migrate, preempt, terminate, stop, retire; `maintenance` for an unknown
    effect, `rebalance` for a raised risk without a plan. description: the cloud's own text. starts: seconds
    since the epoch, None if unknown. is_started: whether it is in progress. notice: seconds within which it
    starts, where the start is unknown. machines: names of the affected machines; empty if it can only be this
    machine. unparsed_start: a start that cannot be parsed, as the cloud wrote it.
    """

    kind: str
    description: str
    starts: float | None = None
    is_started: bool = False
    notice: float = 0.0
    machines: tuple[str, ...] = ()
    unparsed_start: str = ""


class Feed(Struct, frozen=True):
    """One document of the metadata service that lists planned events.

    parse: raises ValueError for a document in another form than the documented one. empty_statuses: statuses
    that mean that nothing is planned. Any other 404 means that this machine does not have the feed.
    """

    request: MetadataRequest
    parse: Callable[[str], tuple[PlannedEvent, ...]]
    empty_statuses: frozenset[int] = frozenset()

    def parse_response(self, response: MetadataResponse) -> tuple[PlannedEvent, ...] | str | None:
        """Return the events, perhaps none; None where the feed does not exist; a reason if it is unusable."""
        status = response.status
        if status in self.empty_statuses:
            return ()
        if status == 404:
            return None
        if status != 200:
            return status_reason(status)
        try:
            return self.parse(response.body)
        except ValueError:
            return f"returns {one_line(response.body, 60)!r}, which is not valid"


def status_reason(status: int) -> str:
    """Return why a response with a status other than 200 is unusable."""
    if 300 <= status < 400:
        return f"redirects elsewhere (HTTP {status}), which is not followed"
    return _STATUS_REASONS.get(status, f"fails (HTTP {status})")


def _unmerged(events: tuple[PlannedEvent, ...], _now: float) -> tuple[PlannedEvent, ...]:
    return events


class Cloud(Struct, frozen=True):
    """A cloud.

    timeout: seconds for one response. name_request: returns the cloud's name of this machine, where events
    may concern other machines. timeout_hint: a likely cause of a timeout. merge: joins events that are the
    same event in several feeds; arguments: events, seconds since the epoch.
    """

    feeds: tuple[Feed, ...]
    timeout: float
    timeout_hint: str
    name_request: MetadataRequest | None = None
    merge: Callable[[tuple[PlannedEvent, ...], float], tuple[PlannedEvent, ...]] = _unmerged


def one_line(text: object, limit: int = _SHOWN) -> str:
    """Return a text from the cloud as one printable line, cut to a limit."""
    line = " ".join("".join(char if char.isprintable() else " " for char in str(text)).split())
    return line if len(line) <= limit else f"{line[:limit]}…"


def describe(cloud: str, event_type: str, details: object) -> str:
    """Return the description of an event: the cloud, its name of the event type and, if any, the details."""
    more = one_line(details) if isinstance(details, str) else ""
    return f"{cloud} {one_line(event_type, 60)} ({more})" if more else f"{cloud} {one_line(event_type, 60)}"


def decode_json(body: str, shape: type[Shape]) -> Shape:
    """Return a JSON document of a given shape. Raises ValueError."""
    try:
        return JsonDecoder(shape).decode(body)
    except msgspec.DecodeError as error:
        raise ValueError(body) from error


def required_text(event: dict[str, Any], name: str) -> str:
    """Return a text field that must be present. Raises ValueError."""
    value = event.get(name)
    if not isinstance(value, str) or not value.strip():
        raise ValueError(event)
    return value.strip()


def parse_start(value: object) -> tuple[float | None, str]:
    """Return a start in seconds since the epoch, and its text if it cannot be parsed.

    Forms: `Mon, 19 Sep 2026 18:29:47 GMT` (Azure), `21 Sep 2026 09:00:43 GMT` (AWS), `2026-09-18T08:22:00Z`.
    A missing value gives (None, "").
    """
    if value is None or value == "":
        return None, ""
    text = str(value).strip()
    for parse in (parse_rfc3339, parse_http_date):
        try:
            return parse(text), ""
        except (ValueError, OverflowError):
            continue
    return None, text[:60]


class FeedResults(Struct, frozen=True):
    """The results of all feeds of a cloud.

    planned: the events of this machine. unread: why some events are unknown, empty if all are known.
    has_feed: whether the cloud has any feed for this machine.
    """

    planned: tuple[PlannedEvent, ...]
    unread: str
    has_feed: bool


def query(machine: Machine, cloud: Cloud) -> FeedResults:
    """Read all feeds of a cloud and return the planned events of this machine."""
    planned: list[PlannedEvent] = []
    unread, has_feed = "", False
    for feed in cloud.feeds:
        response = _response(machine, cloud, feed.request)
        if isinstance(response, str):
            # All feeds are of one service, which would not answer the other requests either.
            unread = unread or f"{_url(feed.request)} {response}"
            break
        events = feed.parse_response(response)
        if isinstance(events, str):
            unread = unread or f"{_url(feed.request)} {events}"
        elif events is not None:
            planned.extend(events)
            has_feed = True
    own, unknown = _of_this_machine(machine, cloud, tuple(planned))
    return FeedResults(cloud.merge(own, machine.now().wall), unread or unknown, has_feed)


def _of_this_machine(
    machine: Machine, cloud: Cloud, planned: tuple[PlannedEvent, ...]
) -> tuple[tuple[PlannedEvent, ...], str]:
    """Return the events of this machine, and why it is unknown which events these are."""
    shared = next((event for event in planned if event.machines), None)
    if shared is None or cloud.name_request is None:
        return planned, ""
    response = _response(machine, cloud, cloud.name_request)
    if isinstance(response, MetadataResponse):
        name = response.body.strip().casefold()
        if response.status == 200 and name:
            return tuple(event for event in planned if name in map(str.casefold, event.machines)), ""
        reason = "returns nothing" if response.status == 200 else status_reason(response.status)
    else:
        reason = response
    return (), f"{shared.description} is for this machine or for others: {_url(cloud.name_request)} {reason}"


def _response(machine: Machine, cloud: Cloud, request: MetadataRequest) -> MetadataResponse | str:
    """Return a response, or the reason why there is none."""
    try:
        return machine.http(request, cloud.timeout)
    except UnansweredError:
        return f"gave no answer within {cloud.timeout:g} s: {cloud.timeout_hint}"
    except OSError as error:
        return _ERROR_REASONS.get(error.errno or 0) or f"cannot be asked: {failure_reason(error)}"


def _url(request: MetadataRequest) -> str:
    return f"{ADDRESS}{request.path.partition('?')[0]}"


def plan_signals(planned: tuple[PlannedEvent, ...], now: float) -> tuple[dict[str, Scalar], dict[str, str]]:
    """Return the signals of the earliest event, and why some signals are unknown.

    planned: at least one event. now: seconds since the epoch.
    """
    first, *others = sorted(planned, key=lambda event: _urgency(event, now))
    more = f", the first of {len(others) + 1}" if others else ""
    signals: dict[str, Scalar] = {
        "maintenance.pending": True,
        "maintenance.kind": first.kind,
        "maintenance.what": first.description + more,
        "maintenance.when": _start_text(first, now),
    }
    if first.is_started:
        signals["maintenance.starts_in"] = 0.0
    elif first.starts is not None:
        signals["maintenance.starts_in"] = max(0.0, first.starts - now)
    elif first.unparsed_start:
        return signals, {"maintenance.starts_in": f"the start is {first.unparsed_start!r}"}
    return signals, {}


def _urgency(event: PlannedEvent, now: float) -> tuple[int, float]:
    """Return a sort key: started events first, then by start; a mere risk comes last."""
    if event.kind == "rebalance":
        return 2, 0.0
    if event.is_started:
        return 0, 0.0
    return 1, event.starts if event.starts is not None else now + event.notice


def _start_text(event: PlannedEvent, now: float) -> str:
    if event.is_started:
        return "in progress"
    if event.starts is None:
        if event.notice:
            return f"within {event.notice / 60:.0f} min"
        return f"at '{one_line(event.unparsed_start)}'" if event.unparsed_start else "at an unknown time"
    start = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(event.starts))
    return f"due since {start}" if event.starts <= now else f"not before {start}"
