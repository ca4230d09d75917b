"""What is the same in all clouds: what they plan, and where they tell of it. Pure."""

from __future__ import annotations

import errno
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from nodeguard.model.failure import UnansweredError
from nodeguard.model.signal import Scalar
from nodeguard.sources.machine import Machine
from nodeguard.sources.readings import failure_reason
from nodeguard.sources.request import ADDRESS, ANSWER_LIMIT, MetadataRequest, MetadataResponse

_SHOWN = 160

Shape = TypeVar("Shape")

# Why an answer other than 200 tells nothing, by status. HTTP; of 410 Azure says that its service is being
# updated, and of 429 and 503 all three that the next attempt may do.
_REFUSED = {
    401: "refuses to answer (HTTP 401)",
    403: "refuses to answer (HTTP 403): it may be turned off for this machine",
    410: "is gone for now (HTTP 410), as while it is updated",
    429: "is asked too often (HTTP 429), perhaps by others, too",
    503: "cannot answer at present (HTTP 503)",
}


class PlannedEvent(Struct, frozen=True):
    """Something that a cloud is going to do to a machine.

    kind: freeze, reboot, redeploy, migrate, preempt, terminate, stop, retire; `maintenance` where its effect
    is not told, `rebalance` for a raised risk without a plan. what: the cloud's own words. starts: seconds
    since the epoch, None where not told. begun: whether it is under way. notice: seconds within which it
    comes, where its moment is not told. machines: names of those that it concerns, none where it can only be
    this one. odd: a moment that makes no sense, as the cloud wrote it.
    """

    kind: str
    description: str
    starts: float | None = None
    is_started: bool = False
    notice: float = 0.0
    machines: tuple[str, ...] = ()
    unparsed_start: str = ""


class Feed(Struct, frozen=True):
    """One place at which a cloud tells of its plans.

    parse: raises ValueError for what is not in the documented form. none: statuses that mean that nothing is
    planned. Any other 404 is a feed that this machine does not have.
    """

    request: MetadataRequest
    parse: Callable[[str], tuple[PlannedEvent, ...]]
    empty_statuses: frozenset[int] = frozenset()

    def parse_response(self, response: MetadataResponse) -> tuple[PlannedEvent, ...] | str | None:
        """What an answer says: plans, perhaps none; None where there is no such feed; why it says nothing."""
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
            return f"says {one_line(response.body, 60)!r}, which makes no sense"


def status_reason(status: int) -> str:
    """Why an answer of a status other than 200 tells nothing."""
    if 300 <= status < 400:
        return f"redirects elsewhere (HTTP {status}), which is not followed"
    return _REFUSED.get(status, f"fails (HTTP {status})")


def _as_told(planned: tuple[PlannedEvent, ...], _now: float) -> tuple[PlannedEvent, ...]:
    return planned


class Cloud(Struct, frozen=True):
    """A cloud.

    within: seconds for one answer. own_name: asks what the cloud calls this machine, where plans may concern
    others. silence: why there may be no answer. joined: plans with those put together that are one, at a
    moment.
    """

    feeds: tuple[Feed, ...]
    timeout: float
    timeout_hint: str
    name_request: MetadataRequest | None = None
    merge: Callable[[tuple[PlannedEvent, ...], float], tuple[PlannedEvent, ...]] = _as_told


def one_line(text: object, limit: int = _SHOWN) -> str:
    """A text of theirs on one line that can be printed, cut where it is long."""
    said = " ".join("".join(one if one.isprintable() else " " for one in str(text)).split())
    return said if len(said) <= limit else f"{said[:limit]}…"


def describe(cloud: str, word: str, about: object) -> str:
    """What is planned: the cloud, its word for it and, where it says more, that."""
    more = one_line(about) if isinstance(about, str) else ""
    return f"{cloud} {one_line(word, 60)} ({more})" if more else f"{cloud} {one_line(word, 60)}"


def decode_json(body: str, shape: type[Shape]) -> Shape:
    """A JSON document of some shape. Raises ValueError."""
    try:
        return msgspec.json.decode(body, type=shape)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(body) from error


def required_text(event: dict[str, Any], name: str) -> str:
    """A text that has to be there. Raises ValueError."""
    value = event.get(name)
    if not isinstance(value, str) or not value.strip():
        raise ValueError(event)
    return value.strip()


# Why there is no answer, by the error; any other is told as the system words it.
_ERRORS = {
    errno.EPROTO: "does not answer as HTTP is written",
    errno.EMSGSIZE: f"answers with more than {ANSWER_LIMIT >> 10} KiB",
    errno.EKEYREJECTED: "gives out no session token",
    errno.ENOSYS: "was not recorded",
}


class FeedResults(Struct, frozen=True):
    """What came of a round.

    planned: for this machine. unread: why something could not be known, empty where all was. told: whether
    the cloud has any such feed for this machine.
    """

    planned: tuple[PlannedEvent, ...]
    unread: str
    has_feed: bool


def query(machine: Machine, cloud: Cloud) -> FeedResults:
    """Ask a cloud for all that it plans for this machine."""
    planned: list[PlannedEvent] = []
    unread, told = "", False
    for feed in cloud.feeds:
        said = _answer(machine, cloud, feed.request)
        if isinstance(said, str):
            # The feeds are of one service, which would not answer for the others either.
            unread = unread or f"{_where(feed.request)} {said}"
            break
        plans = feed.parse_response(said)
        if isinstance(plans, str):
            unread = unread or f"{_where(feed.request)} {plans}"
        elif plans is not None:
            planned.extend(plans)
            told = True
    mine, unknown = _of_this(machine, cloud, tuple(planned))
    return FeedResults(cloud.merge(mine, machine.now().wall), unread or unknown, told)


def _of_this(
    machine: Machine, cloud: Cloud, planned: tuple[PlannedEvent, ...]
) -> tuple[tuple[PlannedEvent, ...], str]:
    """The plans that concern this machine, and why that is not known of some."""
    shared = next((one for one in planned if one.machines), None)
    if shared is None or cloud.name_request is None:
        return planned, ""
    said = _answer(machine, cloud, cloud.name_request)
    if isinstance(said, MetadataResponse):
        own = said.body.strip().casefold()
        if said.status == 200 and own:
            return tuple(one for one in planned if own in {name.casefold() for name in one.machines}), ""
        said = "says nothing" if said.status == 200 else status_reason(said.status)
    return (), f"{shared.description} is for this machine or for others: {_where(cloud.name_request)} {said}"


def _answer(machine: Machine, cloud: Cloud, request: MetadataRequest) -> MetadataResponse | str:
    """An answer, or why there is none."""
    try:
        return machine.http(request, cloud.timeout)
    except UnansweredError:
        return f"gave no answer within {cloud.timeout:g} s: {cloud.timeout_hint}"
    except OSError as error:
        return _ERRORS.get(error.errno or 0) or f"cannot be asked: {failure_reason(error)}"


def _where(request: MetadataRequest) -> str:
    return f"{ADDRESS}{request.path.partition('?')[0]}"


def plan_signals(planned: tuple[PlannedEvent, ...], now: float) -> tuple[dict[str, Scalar], dict[str, str]]:
    """Signals of the plan that comes first, and why some are not known. planned: at least one. now: seconds
    since the epoch.
    """
    first, *others = sorted(planned, key=lambda one: _urgency(one, now))
    more = f", the first of {len(others) + 1}" if others else ""
    signals: dict[str, Scalar] = {
        "maintenance.pending": True,
        "maintenance.kind": first.kind,
        "maintenance.what": first.description + more,
        "maintenance.when": _when(first, now),
    }
    if first.is_started:
        signals["maintenance.starts_in"] = 0.0
    elif first.starts is not None:
        signals["maintenance.starts_in"] = max(0.0, first.starts - now)
    elif first.unparsed_start:
        return signals, {"maintenance.starts_in": f"the moment is told as {first.unparsed_start!r}"}
    return signals, {}


def _urgency(one: PlannedEvent, now: float) -> tuple[int, float]:
    """The least first: what has begun, then by time, and what is only a risk at the end."""
    if one.kind == "rebalance":
        return 2, 0.0
    if one.is_started:
        return 0, 0.0
    return 1, one.starts if one.starts is not None else now + one.notice


def _when(one: PlannedEvent, now: float) -> str:
    if one.is_started:
        return "under way"
    if one.starts is None:
        if one.notice:
            return f"within {one.notice / 60:.0f} min"
        return (
            f"at a moment told as '{one_line(one.unparsed_start)}'"
            if one.unparsed_start
            else "at a moment that is not told"
        )
    said = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(one.starts))
    return f"due since {said}" if one.starts <= now else f"not before {said}"


_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_HTTP = re.compile(
    r"(?:[A-Z][a-z]{2}, )?(\d{1,2}) ([A-Z][a-z]{2}) (\d{4}) (\d\d):(\d\d):(\d\d) GMT", re.ASCII
)
_ISO = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)", re.ASCII
)  # RFC 3339, always with its zone


def parse_start(value: object) -> tuple[float | None, str]:
    """Seconds since the epoch of a moment, and what makes no sense of it.

    `Mon, 19 Sep 2026 18:29:47 GMT` (Azure), `21 Sep 2026 09:00:43 GMT` (AWS), `2026-09-18T08:22:00Z`; of what
    is not there, (None, ""); of anything else, None and its text.
    """
    if value is None or value == "":
        return None, ""
    text = str(value).strip()
    try:
        return _parsed(text), ""
    except (ValueError, OverflowError):
        return None, text[:60]


def _parsed(text: str) -> float:
    found = _HTTP.fullmatch(text)
    if found:
        day, month, year, *clock = found.groups()
        hour, minute, second = map(int, clock)
        number = _MONTHS.index(month) + 1
        return datetime(int(year), number, int(day), hour, minute, second, tzinfo=UTC).timestamp()
    if _ISO.fullmatch(text):
        return datetime.fromisoformat(text).timestamp()
    raise ValueError(text)
