"""The rows of the table, and how episodes become them. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from bench.simulation.episode import Episode, QuietDays
from bench.simulation.rollouts import Rollout
from nodeguard.simulate.figures import bootstrap, mean, quantile, wilson


class Share(Struct, frozen=True):
    """How many of how many, and where that share surely lies, at 95%."""

    hits: int
    of: int
    low: float
    high: float


class FaultRow(Struct, frozen=True):
    """A kind of shared fault. recall: domains with the fault that were blamed; precision: domains that were
    blamed that had it; where the check is to be held instead, whether it was. p50, p95: seconds to the blame.
    without, quarantines: nodes with the fault that were kept from all work on their own account in an
    episode, if nothing is ever blamed, and as it is. wrong_holds: of checks, in all episodes.
    """

    kind: str
    recall: Share
    precision: Share
    p50: float | None
    p95: float | None
    without: float
    quarantines: float
    wrong_holds: int


class RolloutRow(Struct, frozen=True):
    """A roll-out. most: nodes out at one time that had nothing, in any run; held: runs in which the check
    was; p50: seconds until then. blamed: domains, in all runs.
    """

    rollout: Rollout
    runs: int
    most: int
    held: int
    p50: float | None
    blamed: int


class NoiseRow(Struct, frozen=True):
    """Days as usual, of a fleet of FLEET nodes. domains, marked, holds: a day. low, high: where the mean of
    domains surely lies, at 95%.
    """

    days: float
    domains: float
    low: float
    high: float
    marked: float
    holds: float


def fault_row(kind: str, done: list[Episode], without: list[Episode]) -> FaultRow:
    """The row of a kind. without: the same episodes, where nothing is ever blamed."""
    found, wrong = sum(one.found for one in done), sum(one.wrong for one in done)
    planted = sum(one.planted for one in done)
    if not planted:
        found, planted = sum(one.labelled for one in done), len(done)
    took = [at for one in done for at in one.took]
    return FaultRow(
        kind,
        share(found, planted),
        share(found, found + wrong),
        quantile(took, 0.5),
        quantile(took, 0.95),
        _mean(one.quarantines for one in without),
        _mean(one.quarantines for one in done),
        sum(one.wrongly for one in done),
    )


def rollout_row(rollout: Rollout, done: list[Episode]) -> RolloutRow:
    """The row of a roll-out."""
    return RolloutRow(
        rollout,
        len(done),
        max((one.most for one in done), default=0),
        sum(one.labelled for one in done),
        quantile([at for one in done for at in one.took], 0.5),
        sum(one.wrong for one in done),
    )


def noise_row(done: list[QuietDays]) -> NoiseRow:
    """The row of days as usual."""
    days = sum(one.days for one in done)
    low, high = bootstrap([one.domains / one.days for one in done])
    if not high and days:
        high = _NONE / days
    return NoiseRow(
        days,
        sum(one.domains for one in done) / days,
        low,
        high,
        sum(one.marked for one in done) / days,
        sum(one.holds for one in done) / days,
    )


# Events that are expected at most, at 95% on both sides, where none was seen.
_NONE = 3.69


def share(hits: int, of: int) -> Share:
    """So many of so many, with its interval."""
    return Share(hits, of, *wilson(hits, of))


def _mean(values: Iterable[float]) -> float:
    return mean(list(values)) or 0.0
