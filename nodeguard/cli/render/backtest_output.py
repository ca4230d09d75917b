"""The JSON of nodeguard backtest. Version 1: fields may be added, none taken away or changed in meaning."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec
from msgspec import Struct

from nodeguard.backtest.account import Account, Entry, Next, OfCheck
from nodeguard.backtest.backtest import Tested, difference
from nodeguard.backtest.marks import End
from nodeguard.cli.moments import rfc3339
from nodeguard.model.incident import State
from nodeguard.model.mark import Mark


class MarkOutput(Struct, frozen=True):
    """A mark that was set, withheld, or only thought of, and what happened next.

    state: `Marked`, `Withheld` or `Observed`. from, until: RFC 3339; until null while it stands. ended: how,
    see marks.End. why: why it was withheld. next: see account.Next; lasted in seconds.
    """

    node: str
    uid: str
    pool: str
    check: str
    target: str
    mark: Mark
    state: State
    began: str = msgspec.field(name="from")
    until: str | None = None
    ended: End = End.OPEN
    why: tuple[str, ...] = ()
    next: Next = Next()


class ReasonOutput(Struct, frozen=True):
    """Why marks were withheld, and how many."""

    why: str
    marks: int


class PolicyOutput(Struct, frozen=True):
    """What one policy comes to. node_hours: for which nodes were marked, each once at a time. most, most_at:
    nodes marked at a time, RFC 3339. checks: see account.OfCheck.
    """

    file: str
    nodes: int
    node_hours: float
    most: int
    most_at: str | None
    checks: tuple[OfCheck, ...]
    reasons: tuple[ReasonOutput, ...]
    marks: tuple[MarkOutput, ...]


class DifferenceOutput(Struct, frozen=True):
    """Marks of the first policy alone, of the second alone, and how many stood under both."""

    first: tuple[MarkOutput, ...]
    second: tuple[MarkOutput, ...]
    both: int


class Output(Struct, frozen=True):
    """What nodeguard backtest --format json prints. difference: null with one policy."""

    version: Literal[1]
    since: str
    until: str
    nodes: int
    transitions: int
    policies: tuple[PolicyOutput, ...]
    difference: DifferenceOutput | None


def as_json(files: Sequence[str], found: Tested) -> str:
    """A backtest as JSON, indented for people."""
    output = Output(
        version=1,
        since=rfc3339(found.since),
        until=rfc3339(found.until),
        nodes=found.nodes,
        transitions=found.recent,
        policies=tuple(_policy(file, one) for file, one in zip(files, found.accounts, strict=True)),
        difference=_difference(*found.accounts) if len(found.accounts) == 2 else None,
    )
    return msgspec.json.format(msgspec.json.encode(output), indent=2).decode()


def _policy(file: str, one: Account) -> PolicyOutput:
    return PolicyOutput(
        file=file,
        nodes=one.nodes,
        node_hours=round(one.seconds / 3600.0, 3),
        most=one.most,
        most_at=rfc3339(one.at) if one.most else None,
        checks=one.checks,
        reasons=tuple(ReasonOutput(why, many) for why, many in one.reasons),
        marks=_marks(one.entries),
    )


def _difference(first: Account, second: Account) -> DifferenceOutput:
    found = difference(first, second)
    return DifferenceOutput(_marks(found.first), _marks(found.second), len(found.both))


def _marks(entries: Iterable[Entry]) -> tuple[MarkOutput, ...]:
    return tuple(
        MarkOutput(
            node=one.asked.node,
            uid=one.asked.uid,
            pool=one.asked.pool,
            check=one.asked.check,
            target=one.asked.target,
            mark=one.asked.mark,
            state=one.state,
            began=rfc3339(one.began),
            until=None if one.ended is None else rfc3339(one.ended),
            ended=one.end,
            why=one.whys,
            next=one.next,
        )
        for one in entries
    )
