"""Backtest of policies on the same steps. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from nodeguard.backtest.finding_episodes import FindingEpisodes
from nodeguard.backtest.fleet_replay import FleetReplay
from nodeguard.backtest.policy_result import PolicyResult, policy_result
from nodeguard.fleet.state.history_events import HistoryEvent
from nodeguard.model.policy import Policy


class BacktestResult(Struct, frozen=True):
    """Result of each policy over a time range.

    nodes: that reported; reports: all transitions of theirs; recent_reports: those since the start of the
    range; last_step: time of the last step.
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
    """Return the result of policies on recorded steps.

    checks: ids of the catalogue's checks. since: earlier marks are left out; it may be before all steps.
    until: when the recording ended; the last state is kept for at least the grace periods. Times are seconds
    since the epoch.
    """
    check_ids = tuple(checks)
    replays = [FleetReplay(policy, check_ids) for policy in policies]
    episodes = FindingEpisodes()
    first = last = None
    recent = 0
    for step in steps:
        first = step.at if first is None else first
        last = step.at
        before = episodes.reports
        episodes.apply_step(step)
        recent += episodes.reports - before if step.at >= since else 0
        for replay in replays:
            replay.apply_step(step)
    end = max(until, (last or 0.0) + max((_settle_seconds(policy) for policy in policies), default=0.0))
    for replay in replays:
        replay.advance_to(end)
    start = max(since, first or 0.0)
    return BacktestResult(
        since=start,
        until=end,
        nodes=len(episodes.nodes),
        reports=episodes.reports,
        recent_reports=recent,
        last_step=last or 0.0,
        results=tuple(
            policy_result(replay, episodes, policy, start, end)
            for replay, policy in zip(replays, policies, strict=True)
        ),
    )


# Seconds after its start from which a planner acts on any number of reports, and one to spare.
_START = 61.0


def _settle_seconds(policy: Policy) -> float:
    return max(policy.grace.quarantine, policy.grace.suspect, _START) + 1.0
