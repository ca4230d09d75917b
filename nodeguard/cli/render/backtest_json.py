"""The JSON of nodeguard backtest. Version 1: fields may be added, none taken away or changed in meaning."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec
from msgspec import Struct

from nodeguard.backtest.backtest import BacktestResult, compare_policies
from nodeguard.backtest.mark_tracker import MarkEnd
from nodeguard.backtest.policy_result import CheckResult, Followup, MarkResult, PolicyResult
from nodeguard.cli.timestamps import rfc3339
from nodeguard.model.incident import IncidentState
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
    state: IncidentState
    began: str = msgspec.field(name="from")
    until: str | None = None
    ended: MarkEnd = MarkEnd.OPEN
    reasons: tuple[str, ...] = ()
    next: Followup = Followup()


class ReasonOutput(Struct, frozen=True):
    """Why marks were withheld, and how many."""

    reason: str
    marks: int


class PolicyResultOutput(Struct, frozen=True):
    """What one policy comes to. node_hours: for which nodes were marked, each once at a time. most, most_at:
    nodes marked at a time, RFC 3339. checks: see account.OfCheck.
    """

    file: str
    nodes: int
    node_hours: float
    max_marked: int
    most_at: str | None
    checks: tuple[CheckResult, ...]
    reasons: tuple[ReasonOutput, ...]
    marks: tuple[MarkOutput, ...]


class DifferenceOutput(Struct, frozen=True):
    """Marks of the first policy alone, of the second alone, and how many stood under both."""

    first: tuple[MarkOutput, ...]
    second: tuple[MarkOutput, ...]
    both: int


class BacktestOutput(Struct, frozen=True):
    """What nodeguard backtest --format json prints. difference: null with one policy."""

    version: Literal[1]
    since: str
    until: str
    nodes: int
    transitions: int
    policies: tuple[PolicyResultOutput, ...]
    difference: DifferenceOutput | None


def as_json(files: Sequence[str], found: BacktestResult) -> str:
    """A backtest as JSON, indented for people."""
    output = BacktestOutput(
        version=1,
        since=rfc3339(found.since),
        until=rfc3339(found.until),
        nodes=found.nodes,
        transitions=found.recent_reports,
        policies=tuple(_policy(file, one) for file, one in zip(files, found.results, strict=True)),
        difference=_difference(*found.results) if len(found.results) == 2 else None,
    )
    return msgspec.json.format(msgspec.json.encode(output), indent=2).decode()


def _policy(file: str, one: PolicyResult) -> PolicyResultOutput:
    return PolicyResultOutput(
        file=file,
        nodes=one.nodes,
        node_hours=round(one.seconds / 3600.0, 3),
        most=one.max_marked,
        most_at=rfc3339(one.max_marked_at) if one.max_marked else None,
        checks=one.checks,
        reasons=tuple(ReasonOutput(why, many) for why, many in one.reasons),
        marks=_marks(one.marks),
    )


def _difference(first: PolicyResult, second: PolicyResult) -> DifferenceOutput:
    found = compare_policies(first, second)
    return DifferenceOutput(_marks(found.first), _marks(found.second), len(found.both))


def _marks(entries: Iterable[MarkResult]) -> tuple[MarkOutput, ...]:
    return tuple(
        MarkOutput(
            node=one.request.node,
            uid=one.request.uid,
            pool=one.request.pool,
            check=one.request.check,
            target=one.request.target,
            mark=one.request.mark,
            state=one.state,
            began=rfc3339(one.start),
            until=None if one.end is None else rfc3339(one.end),
            ended=one.end_reason,
            why=one.reasons,
            next=one.followup,
        )
        for one in entries
    )
