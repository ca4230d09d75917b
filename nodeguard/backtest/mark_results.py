"""Marks of a replay, compared with the later course of their findings, and their totals by check. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct, field

from nodeguard.backtest.finding_episodes import EpisodeEnd, FindingEpisode
from nodeguard.backtest.mark_tracker import MarkEnd, MarkSpan, RequestedMark
from nodeguard.fleet.decide.mark_requests import resource_of
from nodeguard.model.finding import Health
from nodeguard.model.incident import IncidentState
from nodeguard.model.instant import Timestamp
from nodeguard.model.mark import Mark
from nodeguard.model.policy import SoakPeriod
from nodeguard.simulate.figures import wilson


class Followup(Struct, frozen=True):
    """The course of a finding after its mark was set or requested.

    finding_end: how it ended, and seconds: until then; None if it has not. brief: whether it was resolved
    within the first soak period, so the mark kept a healthy node out of service. recurred: whether the same
    finding came back within the time after which a soak period is forgotten. escalated: whether a suspect
    finding became fatal, then or within that time.
    """

    finding_end: EpisodeEnd = EpisodeEnd.OPEN
    seconds: float | None = None
    brief: bool = False
    recurred: bool = False
    escalated: bool = False


class NodeSeconds(float):
    """A time of nodes in seconds, which is in hours in JSON."""

    def as_json(self) -> float:
        """Return the value in JSON."""
        return round(self / 3600.0, 3)


class MarkResult(RequestedMark, frozen=True):
    """A mark within the time range, and the course of its finding. Fields as in MarkSpan."""

    state: IncidentState
    start: Timestamp = field(name="from")
    end: Timestamp | None = field(name="until")
    end_reason: MarkEnd = field(name="ended")
    reasons: tuple[str, ...] = ()
    followup: Followup = field(name="next", default=Followup())


class CheckIntervals(Struct, frozen=True):
    """Confidence intervals at 95% (Wilson's) of the counts of the same name, as shares of the marks that were
    set.
    """

    brief: tuple[float, float]
    recurred: tuple[float, float]
    escalated: tuple[float, float]


class PolicyCheckResult(Struct, frozen=True):
    """Totals of one check for one kind of mark.

    marked: marks that were set; nodes: number of nodes; seconds: total duration. brief, recurred,
    escalated: of these, see Followup. withheld, dry_run: requests that were not granted. spared: of these,
    those that were resolved within the first soak period for good; missed: those that escalated or recurred.
    covered: requests that the mark of a degraded domain covers; they are not among these. intervals: None
    without marks. ended_in_grace: findings that ended within their grace period, for all kinds of mark.
    """

    check: str
    mark: Mark
    marked: int = 0
    nodes: int = 0
    seconds: float = 0.0
    brief: int = 0
    recurred: int = 0
    escalated: int = 0
    withheld: int = 0
    dry_run: int = 0
    spared: int = 0
    missed: int = 0
    covered: int = 0
    ended_in_grace: int = 0
    intervals: CheckIntervals | None = None


def followup_of(span: MarkSpan, episodes: Sequence[FindingEpisode], soak: SoakPeriod) -> Followup:
    """Return the course of the finding of a mark. episodes: of its node."""
    request = span.request
    same = [
        episode for episode in episodes if (episode.check, episode.target) == (request.check, request.target)
    ]
    # A mark may start shortly before the report of its finding is processed, never after its end.
    started = [episode for episode in same if episode.start <= span.start]
    if not started:
        return Followup()
    episode = started[-1]
    end = episode.end if episode.end is not None and episode.end > span.start else None
    seconds = None if end is None else end - span.start
    recurred = end is not None and any(
        0 <= other.start - end <= soak.forget for other in same if other is not episode
    )
    escalated = False
    if request.mark.kind.health != Health.FATAL:
        last = (span.end or end or float("inf")) + soak.forget
        escalated = any(
            other.fatal_since is not None and span.start < other.fatal_since <= last
            for other in episodes
            if other.failed_target == resource_of(request.target)
        )
    is_resolved = episode.end_reason == EpisodeEnd.RESOLVED
    brief = is_resolved and seconds is not None and seconds <= soak.first
    finding_end = episode.end_reason if end is not None else EpisodeEnd.OPEN
    return Followup(finding_end, seconds, brief, recurred, escalated)


def check_results(
    marks: Iterable[MarkResult], ended_in_grace: Mapping[str, int], since: float, until: float
) -> Iterator[PolicyCheckResult]:
    """Yield the totals of each check and kind of mark."""
    by_check: dict[tuple[str, Mark], list[MarkResult]] = defaultdict(list)
    for mark in marks:
        by_check[mark.check, mark.mark].append(mark)
    counted = set()
    for (check, kind), results in by_check.items():
        marked = [mark for mark in results if mark.state == IncidentState.MARKED]
        others = [
            mark for mark in results if mark.state in _NOT_GRANTED and mark.end_reason != MarkEnd.MARKED
        ]
        brief = sum(mark.followup.brief for mark in marked)
        recurred = sum(mark.followup.recurred for mark in marked)
        escalated = sum(mark.followup.escalated for mark in marked)
        shares = (wilson(count, len(marked)) for count in (brief, recurred, escalated))
        yield PolicyCheckResult(
            check=check,
            mark=kind,
            marked=len(marked),
            nodes=len({mark.uid for mark in marked}),
            seconds=sum(seconds_within(mark.start, mark.end, since, until) for mark in marked),
            brief=brief,
            recurred=recurred,
            escalated=escalated,
            withheld=sum(mark.state == IncidentState.WITHHELD for mark in results),
            dry_run=sum(mark.state == IncidentState.DRY_RUN for mark in results),
            spared=sum(mark.followup.brief and not mark.followup.recurred for mark in others),
            missed=sum(mark.followup.escalated or mark.followup.recurred for mark in others),
            covered=sum(mark.state == IncidentState.OPEN for mark in results),
            ended_in_grace=0 if check in counted else ended_in_grace.get(check, 0),
            intervals=CheckIntervals(*shares) if marked else None,
        )
        counted.add(check)


_NOT_GRANTED = frozenset({IncidentState.WITHHELD, IncidentState.DRY_RUN})


def seconds_within(start: float, end: float | None, since: float, until: float) -> float:
    """Return the seconds of a mark that are within the time range."""
    return max(0.0, min(until if end is None else end, until) - max(start, since))
