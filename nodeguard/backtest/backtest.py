"""A backtest: the same steps under one policy, or under two, and what differs. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from msgspec import Struct

from nodeguard.backtest.finding_episodes import FindingEpisodes
from nodeguard.backtest.fleet_replay import FleetReplay
from nodeguard.backtest.policy_result import MarkResult, PolicyResult, policy_result
from nodeguard.fleet.state.history_events import HistoryEvent
from nodeguard.model.incident import IncidentState
from nodeguard.model.policy import Policy


class BacktestResult(Struct, frozen=True):
    """What was told, from one moment to another, and what each policy comes to. nodes: that reported;
    reports: transitions of theirs in all; recent: those since then; latest: when the last step was.
    """

    since: float
    until: float
    nodes: int
    reports: int
    recent_reports: int
    last_step: float
    results: tuple[PolicyResult, ...]


def run_backtest(
    steps: Iterable[HistoryEvent],
    policies: Sequence[Policy],
    checks: Iterable[str],
    since: float,
    until: float,
) -> BacktestResult:
    """What some steps come to under policies. checks: names of those in the catalogue. since: what was over
    before is left out. until: when whoever listened did so last; at least, all is held to be as it was told
    last for so long that it settles. Times in seconds since the epoch; since may be earlier than all steps.
    """
    known = tuple(checks)
    replays = [FleetReplay(policy, known) for policy in policies]
    spells = FindingEpisodes()
    first = latest = None
    recent = 0
    for step in steps:
        first = step.at if first is None else first
        latest = step.at
        before = spells.reports
        spells.apply_step(step)
        recent += spells.reports - before if step.at >= since else 0
        for replay in replays:
            replay.apply_step(step)
    end = max(until, (latest or 0.0) + max((_settled(one) for one in policies), default=0.0))
    for replay in replays:
        replay.advance_to(end)
    begin = max(since, first or 0.0)
    return BacktestResult(
        since=begin,
        until=end,
        nodes=len(spells.nodes),
        reports=spells.reports,
        recent_reports=recent,
        last_step=latest or 0.0,
        results=tuple(
            policy_result(replay.marks, spells, policy, begin, end)
            for replay, policy in zip(replays, policies, strict=True)
        ),
    )


# Seconds after the start from which a fleet is planned for whatever is heard, and some to spare.
_START = 61.0


def _settled(policy: Policy) -> float:
    return max(policy.grace.quarantine, policy.grace.suspect, _START) + 1.0


class PolicyDifference(Struct, frozen=True):
    """Marks that stood under one policy alone, and pairs of those that stood under both: each of the first
    with the same of the second, at a time that they share.
    """

    first: tuple[MarkResult, ...]
    second: tuple[MarkResult, ...]
    both: tuple[tuple[MarkResult, MarkResult], ...]


def compare_policies(first: PolicyResult, second: PolicyResult) -> PolicyDifference:
    """What two policies make of the same steps."""
    others: dict[tuple[str, str, str, str], list[MarkResult]] = defaultdict(list)
    for one in second.marks:
        if one.state == IncidentState.MARKED:
            others[_place(one)].append(one)
    alone, both, met = [], [], set[int]()
    for one in first.marks:
        if one.state != IncidentState.MARKED:
            continue
        other = next((each for each in others[_place(one)] if _overlap(one, each)), None)
        if other is None:
            alone.append(one)
        else:
            both.append((one, other))
    for one, _ in both:
        met.update(id(each) for each in others[_place(one)] if _overlap(one, each))
    rest = [each for found in others.values() for each in found if id(each) not in met]
    return PolicyDifference(tuple(alone), tuple(sorted(rest, key=lambda one: one.start)), tuple(both))


def _place(one: MarkResult) -> tuple[str, str, str, str]:
    return one.request.uid, one.request.check, one.request.target, one.request.mark


def _overlap(one: MarkResult, other: MarkResult) -> bool:
    ends, others_end = (float("inf") if each.end is None else each.end for each in (one, other))
    return one.start < others_end and other.start < ends
