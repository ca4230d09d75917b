"""One round of questions to a cloud's metadata service."""

from __future__ import annotations

import errno

from msgspec import Struct

from nodeguard.model.failure import UnansweredError
from nodeguard.sources.clouds.cloud import Cloud, Planned, refused
from nodeguard.sources.machine import Machine
from nodeguard.sources.readings import reason
from nodeguard.sources.request import ADDRESS, ANSWER_LIMIT, Request, Response

# Why there is no answer, by the error; any other is told as the system words it.
_ERRORS = {
    errno.EPROTO: "does not answer as HTTP is written",
    errno.EMSGSIZE: f"answers with more than {ANSWER_LIMIT >> 10} KiB",
    errno.EKEYREJECTED: "gives out no session token",
    errno.ENOSYS: "was not recorded",
}


class Round(Struct, frozen=True):
    """What came of a round.

    planned: for this machine. unread: why something could not be known, empty where all was. told: whether
    the cloud has any such feed for this machine.
    """

    planned: tuple[Planned, ...]
    unread: str
    told: bool


def asked(machine: Machine, cloud: Cloud) -> Round:
    """Ask a cloud for all that it plans for this machine."""
    planned: list[Planned] = []
    unread, told = "", False
    for feed in cloud.feeds:
        said = _answer(machine, cloud, feed.request)
        if isinstance(said, str):
            # The feeds are of one service, which would not answer for the others either.
            unread = unread or f"{_where(feed.request)} {said}"
            break
        plans = feed.understood(said)
        if isinstance(plans, str):
            unread = unread or f"{_where(feed.request)} {plans}"
        elif plans is not None:
            planned.extend(plans)
            told = True
    mine, unknown = _of_this(machine, cloud, tuple(planned))
    return Round(cloud.joined(mine, machine.now().wall), unread or unknown, told)


def _of_this(machine: Machine, cloud: Cloud, planned: tuple[Planned, ...]) -> tuple[tuple[Planned, ...], str]:
    """The plans that concern this machine, and why that is not known of some."""
    shared = next((one for one in planned if one.machines), None)
    if shared is None or cloud.own_name is None:
        return planned, ""
    said = _answer(machine, cloud, cloud.own_name)
    if isinstance(said, Response):
        own = said.body.strip().casefold()
        if said.status == 200 and own:
            return tuple(one for one in planned if own in {name.casefold() for name in one.machines}), ""
        said = "says nothing" if said.status == 200 else refused(said.status)
    return (), f"{shared.what} is for this machine or for others: {_where(cloud.own_name)} {said}"


def _answer(machine: Machine, cloud: Cloud, request: Request) -> Response | str:
    """An answer, or why there is none."""
    try:
        return machine.http(request, cloud.within)
    except UnansweredError:
        return f"gave no answer within {cloud.within:g} s: {cloud.silence}"
    except OSError as error:
        return _ERRORS.get(error.errno or 0) or f"cannot be asked: {reason(error)}"


def _where(request: Request) -> str:
    return f"{ADDRESS}{request.path.partition('?')[0]}"
