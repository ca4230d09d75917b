"""Rows of the evaluation's tables, computed from episodes. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from bench.evaluation.episode import Episode, NormalDays
from bench.evaluation.figures import Share, bootstrap, mean, share
from bench.evaluation.rollouts import Rollout
from nodeguard.simulate.figures import poisson, quantile


class FaultRow(Struct, frozen=True):
    """A kind of shared fault. recall: domains with the fault that were diagnosed; where a check should be
    suppressed instead, whether it was. precision: diagnosed domains that had the fault. p50, p95: seconds to
    the diagnosis. without, quarantines: mean number of nodes with the fault that were quarantined in an
    episode without any diagnosis (None if that was not run), and with it. wrongly_suppressed: checks, in all
    episodes.
    """

    kind: str
    recall: Share
    precision: Share
    p50: float | None
    p95: float | None
    without: float | None
    quarantines: float
    wrongly_suppressed: int


class RolloutRow(Struct, frozen=True):
    """A rollout. max_quarantined: healthy nodes at one time, in any run. suppressed: runs in which the check
    was suppressed; p50: seconds until then; visible: seconds from the fifth node on which the check fires
    until then, median and 95%. domains: diagnosed, in all runs.
    """

    rollout: Rollout
    max_quarantined: int
    suppressed: Share
    p50: float | None
    visible: tuple[float | None, float | None]
    domains: int


class NormalDaysRow(Struct, frozen=True):
    """Normal days of a fleet of fleet_nodes. domains, nodes, suppressed: for each day. low, high: the
    confidence interval of the mean number of domains, at 95%.
    """

    fleet_nodes: int
    days: float
    domains: float
    low: float
    high: float
    nodes: float
    suppressed: float


def fault_row(kind: str, episodes: list[Episode], without: list[Episode]) -> FaultRow:
    """Return the row of a kind. without: the same episodes without any diagnosis."""
    detected, wrong = sum(run.detected for run in episodes), sum(run.wrong for run in episodes)
    expected = sum(run.expected for run in episodes)
    if not expected:
        detected, expected = sum(run.is_suppressed for run in episodes), len(episodes)
    seconds = [at for run in episodes for at in run.detection_seconds]
    return FaultRow(
        kind,
        share(detected, expected),
        share(detected, detected + wrong),
        quantile(seconds, 0.5),
        quantile(seconds, 0.95),
        mean([run.quarantines for run in without]),
        mean([run.quarantines for run in episodes]) or 0.0,
        sum(run.wrongly_suppressed for run in episodes),
    )


def rollout_row(rollout: Rollout, episodes: list[Episode]) -> RolloutRow:
    """Return the row of a rollout."""
    visible = [seconds for run in episodes for seconds in run.visible_seconds]
    return RolloutRow(
        rollout,
        max((run.max_healthy_quarantined for run in episodes), default=0),
        share(sum(run.is_suppressed for run in episodes), len(episodes)),
        quantile([at for run in episodes for at in run.detection_seconds], 0.5),
        (quantile(visible, 0.5), quantile(visible, 0.95)),
        sum(run.wrong for run in episodes),
    )


def normal_days_row(fleet_nodes: int, runs: list[NormalDays]) -> NormalDaysRow:
    """Return the row of normal days of a fleet."""
    days = sum(run.days for run in runs)
    low, high = bootstrap([run.domains / run.days for run in runs])
    if not high and days:
        # Resampling shows nothing where no event was seen.
        _, events = poisson(0)
        high = events / days
    return NormalDaysRow(
        fleet_nodes,
        days,
        sum(run.domains for run in runs) / days,
        low,
        high,
        sum(run.nodes for run in runs) / days,
        sum(run.suppressed for run in runs) / days,
    )


def pooled(rows: Sequence[FaultRow]) -> tuple[Share, Share]:
    """Return the recall and the precision of all kinds together."""
    shares = [row.recall for row in rows], [row.precision for row in rows]
    recall, precision = (
        share(sum(part.hits for part in parts), sum(part.of for part in parts)) for parts in shares
    )
    return recall, precision
