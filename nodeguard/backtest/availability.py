"""Availability of a fleet: faults, false alarms, time between faults, time to repair, GPU-hours out. Pure.

A total is the sum of its groups by any grouping, and a period the sum of its parts: a fault counts when it
begins, a repair and a release when they end, and each GPU is out for one cause at a time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

from msgspec import Struct

from nodeguard.backtest.fleet_record import Cause, FleetRecord, Gap, Outage, Presence, RecordedFault
from nodeguard.fleet.state.gpu_shares import gpu_shares
from nodeguard.model.instant import rfc3339
from nodeguard.simulate.figures import poisson, quantile

Grouping = Literal["check", "domain", "part", "action"]

# Fewer faults give no mean, and fewer repairs no 90th percentile: the interval of two faults spans a factor
# of 30, and the 90th percentile of nine values is their maximum.
_MIN_FAULTS = 3
_MIN_REPAIRS = 10

_HOUR = 3_600.0
_DAY = 86_400.0


class Figures(Struct, frozen=True):
    """The figures of the fleet or of a group. A figure is None where too few faults give none.

    faults: that began in the period. ongoing: that last at its end. node_days_between_faults: mean, with its
    interval at 95% (low, high). repaired: faults that ended in the period; repair_seconds: from the begin
    of a fault to its end. released: marks that ended in the period; release_seconds: from the mark to its
    release. gpu_hours_out: kept from all new work; gpu_hours_without_gangs: kept only from work on several
    nodes. false_alarms: that began in the period; they are no faults, and their GPU-hours count.
    false_alarm_rate: per 1,000 node-days, with its interval at 95% (low, high).
    """

    faults: int
    ongoing: int
    node_days_between_faults: float | None
    node_days_low: float | None
    node_days_high: float | None
    repaired: int
    repair_seconds_p50: float | None
    repair_seconds_p90: float | None
    released: int
    release_seconds_p50: float | None
    release_seconds_p90: float | None
    gpu_hours_out: float
    gpu_hours_without_gangs: float
    false_alarms: int
    false_alarm_rate: float | None
    false_alarm_rate_low: float | None
    false_alarm_rate_high: float | None


class GroupFigures(Struct, frozen=True):
    """The figures of a group. name: of the check, domain, part or action; empty for none, or unknown."""

    name: str
    figures: Figures


class RecordingGap(Struct, frozen=True):
    """A time in which nothing was recorded: the aggregator did not run, or could not write its history."""

    since: str
    until: str
    seconds: float


class AvailabilityReport(Struct, frozen=True):
    """The availability of a fleet in a period.

    node_days: observed, without gaps and stale agents. gpu_hours: in the fleet, without gaps. gaps: count as
    neither healthy nor out. injected_faults: of rehearsals in the whole history; they are left out.
    """

    version: Literal[1]
    since: str
    until: str
    node_days: float
    gpu_hours: float
    gaps: tuple[RecordingGap, ...]
    injected_faults: int
    total: Figures
    by: Grouping
    groups: tuple[GroupFigures, ...]


class _Piece(NamedTuple):
    """GPU-hours that one cause took."""

    cause: Cause
    gpu_hours: float
    gang_only: bool


class _Members:
    """The faults, false alarms and marks of a group."""

    def __init__(
        self,
        faults: Iterable[RecordedFault] = (),
        false_alarms: Iterable[RecordedFault] = (),
        outages: Iterable[Outage] = (),
        pieces: Iterable[_Piece] = (),
    ) -> None:
        self.faults, self.false_alarms = list(faults), list(false_alarms)
        self.outages, self.pieces = list(outages), list(pieces)


def availability(record: FleetRecord, since: float, until: float, by: Grouping) -> AvailabilityReport:
    """Return the availability in a period. since, until: seconds since the epoch, within the record."""
    fleet_gaps = [gap for gap in record.gaps if not gap.node]
    node_gaps: dict[str, list[Gap]] = defaultdict(list)
    for gap in record.gaps:
        if gap.node:
            node_gaps[gap.node].append(gap)
    node_days = gpu_hours = 0.0
    for presence in record.presences:
        span = _clipped(presence, since, until)
        node_days += _seconds_outside(span, [*fleet_gaps, *node_gaps[presence.node]]) / _DAY
        gpu_hours += _seconds_outside(span, fleet_gaps) * presence.gpus / _HOUR
    pieces = list(_pieces(record, fleet_gaps, since, until))
    gaps = [(start, end) for start, end in (_clipped(gap, since, until) for gap in fleet_gaps) if end > start]
    members: dict[str, _Members] = defaultdict(_Members)
    for fault in record.faults:
        members[_name(fault.cause, by)].faults.append(fault)
    for false_alarm in record.false_alarms:
        members[_name(false_alarm.cause, by)].false_alarms.append(false_alarm)
    for outage in record.outages:
        members[_name(outage.cause, by)].outages.append(outage)
    for piece in pieces:
        members[_name(piece.cause, by)].pieces.append(piece)
    period = since, until
    groups = [GroupFigures(name, _figures(group, gaps, period, node_days)) for name, group in members.items()]
    groups = [group for group in groups if not _is_empty(group.figures)]
    groups.sort(key=lambda group: (-group.figures.gpu_hours_out, -group.figures.faults, group.name))
    return AvailabilityReport(
        version=1,
        since=rfc3339(since),
        until=rfc3339(until),
        node_days=node_days,
        gpu_hours=gpu_hours,
        gaps=tuple(RecordingGap(rfc3339(start), rfc3339(end), end - start) for start, end in sorted(gaps)),
        injected_faults=record.injected,
        total=_figures(
            _Members(record.faults, record.false_alarms, record.outages, pieces), gaps, period, node_days
        ),
        by=by,
        groups=tuple(groups),
    )


def _name(cause: Cause, by: Grouping) -> str:
    name: str = getattr(cause, by)
    return name


def _is_empty(figures: Figures) -> bool:
    counts = figures.faults + figures.ongoing + figures.repaired + figures.released + figures.false_alarms
    return not counts and not figures.gpu_hours_out + figures.gpu_hours_without_gangs


def _figures(
    members: _Members, gaps: Sequence[tuple[float, float]], period: tuple[float, float], node_days: float
) -> Figures:
    since, until = period
    faults, observed_faults = _begun(members.faults, gaps, period)
    false_alarms, observed_alarms = _begun(members.false_alarms, gaps, period)
    mean, low, high = _between(observed_faults, node_days)
    rate, least_rate, highest_rate = _rate(observed_alarms, node_days / 1_000.0)
    repairs = _durations(members.faults, since, until)
    releases = _durations(members.outages, since, until)
    hours = dict.fromkeys((False, True), 0.0)
    for piece in members.pieces:
        hours[piece.gang_only] += piece.gpu_hours
    return Figures(
        faults=faults,
        ongoing=sum(fault.began < until and not _is_over(fault, until) for fault in members.faults),
        node_days_between_faults=mean,
        node_days_low=low,
        node_days_high=high,
        repaired=len(repairs),
        repair_seconds_p50=quantile(repairs, 0.5),
        repair_seconds_p90=_p90(repairs),
        released=len(releases),
        release_seconds_p50=quantile(releases, 0.5),
        release_seconds_p90=_p90(releases),
        gpu_hours_out=hours[False],
        gpu_hours_without_gangs=hours[True],
        false_alarms=false_alarms,
        false_alarm_rate=rate,
        false_alarm_rate_low=least_rate,
        false_alarm_rate_high=highest_rate,
    )


def _begun(
    faults: Iterable[RecordedFault], gaps: Sequence[tuple[float, float]], period: tuple[float, float]
) -> tuple[int, int]:
    """Return how many faults began in a period, and how many of these outside of its gaps."""
    since, until = period
    began = [fault.began for fault in faults if since <= fault.began < until]
    return len(began), sum(not any(start <= at < end for start, end in gaps) for at in began)


def _rate(events: int, exposure: float) -> tuple[float | None, float | None, float | None]:
    """Return the rate of events with its interval; None without exposure."""
    if not exposure:
        return None, None, None
    low, high = poisson(events)
    return events / exposure, low / exposure, high / exposure


def _between(faults: int, node_days: float) -> tuple[float | None, float | None, float | None]:
    """Return the mean of node-days between faults with its interval; None for too few faults, or no node."""
    if faults < _MIN_FAULTS or not node_days:
        return None, None, None
    low, high = poisson(faults)
    return node_days / faults, node_days / high, node_days / low


def _p90(durations: Sequence[float]) -> float | None:
    return quantile(durations, 0.9) if len(durations) >= _MIN_REPAIRS else None


def _is_over(period: RecordedFault | Outage, until: float) -> bool:
    return period.ended is not None and period.ended < until


def _durations(periods: Iterable[RecordedFault | Outage], since: float, until: float) -> list[float]:
    """Return the durations, in seconds, of what ended in a period."""
    return [
        max(0.0, period.ended - period.began)
        for period in periods
        if period.ended is not None and since <= period.ended < until
    ]


def _clipped(period: Outage | Presence | Gap, since: float, until: float) -> tuple[float, float]:
    start = max(period.began, since)
    return start, max(start, until if period.ended is None else min(period.ended, until))


def _seconds_outside(span: tuple[float, float], gaps: Iterable[Gap]) -> float:
    """Return the seconds of a span that are in none of the gaps, which may overlap."""
    start, end = span
    seconds = 0.0
    for gap_start, gap_end in sorted(_clipped(gap, start, end) for gap in gaps):
        seconds += max(0.0, min(gap_start, end) - start)
        start = max(start, min(gap_end, end))
    return seconds + end - start


def _pieces(record: FleetRecord, gaps: list[Gap], since: float, until: float) -> Iterator[_Piece]:
    """Yield the GPU-hours that each cause took. Between two changes of a node they are constant."""
    outages: dict[str, list[Outage]] = defaultdict(list)
    for outage in record.outages:
        outages[outage.node].append(outage)
    for presence in record.presences:
        marked = outages.get(presence.node, ())
        start, end = _clipped(presence, since, until)
        times = {start, end}
        for period in (*marked, *gaps):
            times.update(time for time in _clipped(period, since, until) if start < time < end)
        for begin, finish in pairwise(sorted(times)):
            if any(_covers(gap, begin) for gap in gaps):
                continue
            active = [outage for outage in marked if _covers(outage, begin)]
            for outage, gpus in gpu_shares(active, presence.gpus):
                hours = gpus * (finish - begin) / _HOUR
                yield _Piece(outage.cause, hours, outage.mark.kind.gang_only)


def _covers(period: Outage | Gap, time: float) -> bool:
    return period.began <= time and (period.ended is None or time < period.ended)
