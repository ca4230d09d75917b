"""What is the same in all clouds: what they plan, and where they tell of it. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from nodeguard.sources.request import Request, Response

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


class Planned(Struct, frozen=True):
    """Something that a cloud is going to do to a machine.

    kind: freeze, reboot, redeploy, migrate, preempt, terminate, stop, retire; `maintenance` where its effect
    is not told, `rebalance` for a raised risk without a plan. what: the cloud's own words. starts: seconds
    since the epoch, None where not told. begun: whether it is under way. notice: seconds within which it
    comes, where its moment is not told. machines: names of those that it concerns, none where it can only be
    this one. odd: a moment that makes no sense, as the cloud wrote it.
    """

    kind: str
    what: str
    starts: float | None = None
    begun: bool = False
    notice: float = 0.0
    machines: tuple[str, ...] = ()
    odd: str = ""


class Feed(Struct, frozen=True):
    """One place at which a cloud tells of its plans.

    parse: raises ValueError for what is not in the documented form. none: statuses that mean that nothing is
    planned. Any other 404 is a feed that this machine does not have.
    """

    request: Request
    parse: Callable[[str], tuple[Planned, ...]]
    none: frozenset[int] = frozenset()

    def understood(self, response: Response) -> tuple[Planned, ...] | str | None:
        """What an answer says: plans, perhaps none; None where there is no such feed; why it says nothing."""
        status = response.status
        if status in self.none:
            return ()
        if status == 404:
            return None
        if status != 200:
            return refused(status)
        try:
            return self.parse(response.body)
        except ValueError:
            return f"says {plain(response.body, 60)!r}, which makes no sense"


def refused(status: int) -> str:
    """Why an answer of a status other than 200 tells nothing."""
    if 300 <= status < 400:
        return f"redirects elsewhere (HTTP {status}), which is not followed"
    return _REFUSED.get(status, f"fails (HTTP {status})")


def _as_told(planned: tuple[Planned, ...], _now: float) -> tuple[Planned, ...]:
    return planned


class Cloud(Struct, frozen=True):
    """A cloud.

    within: seconds for one answer. own_name: asks what the cloud calls this machine, where plans may concern
    others. silence: why there may be no answer. joined: plans with those put together that are one, at a
    moment.
    """

    feeds: tuple[Feed, ...]
    within: float
    silence: str
    own_name: Request | None = None
    joined: Callable[[tuple[Planned, ...], float], tuple[Planned, ...]] = _as_told


def plain(text: object, limit: int = _SHOWN) -> str:
    """A text of theirs on one line that can be printed, cut where it is long."""
    said = " ".join("".join(one if one.isprintable() else " " for one in str(text)).split())
    return said if len(said) <= limit else f"{said[:limit]}…"


def named(cloud: str, word: str, about: object) -> str:
    """What is planned: the cloud, its word for it and, where it says more, that."""
    more = plain(about) if isinstance(about, str) else ""
    return f"{cloud} {plain(word, 60)} ({more})" if more else f"{cloud} {plain(word, 60)}"


def document(body: str, shape: type[Shape]) -> Shape:
    """A JSON document of some shape. Raises ValueError."""
    try:
        return msgspec.json.decode(body, type=shape)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(body) from error


def field(event: dict[str, Any], name: str) -> str:
    """A text that has to be there. Raises ValueError."""
    value = event.get(name)
    if not isinstance(value, str) or not value.strip():
        raise ValueError(event)
    return value.strip()
