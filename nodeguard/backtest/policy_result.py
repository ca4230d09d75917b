"""Result of a policy: its marks, compared with the later course of their findings. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from nodeguard.backtest.finding_episodes import EpisodeEnd, FindingEpisode, FindingEpisodes
from nodeguard.backtest.mark_tracker import MarkEnd, MarkSpan, MarkTracker, RequestedMark
from nodeguard.fleet.decide.mark_requests import resource_of
from nodeguard.model.incident import IncidentState
from nodeguard.model.mark import Mark
from nodeguard.model.policy import Policy, SoakPeriod


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


class MarkResult(Struct, frozen=True):
    """A mark within the time range, and the course of its finding. Fields as in MarkSpan."""

    request: RequestedMark
    state: IncidentState
    start: float
    end: float | None
    end_reason: MarkEnd
    followup: Followup
    reasons: tuple[str, ...] = ()


class PolicyCheckResult(Struct, frozen=True):
    """Totals of one check for one kind of mark.

    marked: marks that were set; nodes: number of nodes; seconds: total duration. brief, recurred,
    escalated: of these, see Followup. withheld, dry_run: requests that were not granted. spared: of these,
    those that were resolved within the first soak period for good; missed: those that escalated or recurred.
    ended_in_grace: findings that ended within their grace period, for all kinds of mark.
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
    ended_in_grace: int = 0


class PolicyResult(Struct, frozen=True):
    """Result of a policy over a time range, in seconds since the epoch.

    marks: in the order of their start. checks: those with most marks first. nodes: that were marked; seconds:
    for which they were, in total, each once at a time. max_marked: nodes at one time, and max_marked_at: when
    first. reasons: why marks were withheld, the most frequent first.
    """

    since: float
    until: float
    marks: tuple[MarkResult, ...]
    checks: tuple[PolicyCheckResult, ...]
    nodes: int
    seconds: float
    max_marked: int
    max_marked_at: float
    reasons: tuple[tuple[str, int], ...]


def policy_result(
    tracker: MarkTracker, episodes: FindingEpisodes, policy: Policy, since: float, until: float
) -> PolicyResult:
    """Return the result of a replay. Marks that ended before the time range are left out."""
    marks = tuple(
        MarkResult(
            span.request, span.state, span.start, span.end, span.end_reason,
            _followup(span, episodes.by_node.get(span.request.uid, ()), policy.soak), tuple(span.reasons),
        )
        for span in tracker.spans
        if (span.end is None or span.end > since) and span.start <= until
    )  # fmt: skip
    marked = [mark for mark in marks if mark.state == IncidentState.MARKED]
    reasons = Counter(
        reason for mark in marks if mark.state == IncidentState.WITHHELD for reason in mark.reasons
    )
    max_marked, max_marked_at, seconds = _marked_time(marked, since, until)
    return PolicyResult(
        since=since,
        until=until,
        marks=marks,
        checks=tuple(sorted(_check_results(marks, tracker.ended_in_grace, since, until), key=_order)),
        nodes=len({mark.request.uid for mark in marked}),
        seconds=seconds,
        max_marked=max_marked,
        max_marked_at=max_marked_at,
        reasons=tuple(sorted(reasons.items(), key=lambda item: (-item[1], item[0]))),
    )


def _followup(span: MarkSpan, episodes: Sequence[FindingEpisode], soak: SoakPeriod) -> Followup:
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
    if request.mark == Mark.SUSPECT:
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


def _check_results(
    marks: Iterable[MarkResult], ended_in_grace: Mapping[str, int], since: float, until: float
) -> Iterator[PolicyCheckResult]:
    by_check: dict[tuple[str, Mark], list[MarkResult]] = defaultdict(list)
    for mark in marks:
        by_check[mark.request.check, mark.request.mark].append(mark)
    counted = set()
    for (check, kind), results in by_check.items():
        marked = [mark for mark in results if mark.state == IncidentState.MARKED]
        others = [
            mark
            for mark in results
            if mark.state != IncidentState.MARKED and mark.end_reason != MarkEnd.MARKED
        ]
        yield PolicyCheckResult(
            check=check,
            mark=kind,
            marked=len(marked),
            nodes=len({mark.request.uid for mark in marked}),
            seconds=sum(_seconds_within(mark, since, until) for mark in marked),
            brief=sum(mark.followup.brief for mark in marked),
            recurred=sum(mark.followup.recurred for mark in marked),
            escalated=sum(mark.followup.escalated for mark in marked),
            withheld=sum(mark.state == IncidentState.WITHHELD for mark in results),
            dry_run=sum(mark.state == IncidentState.DRY_RUN for mark in results),
            spared=sum(mark.followup.brief and not mark.followup.recurred for mark in others),
            missed=sum(mark.followup.escalated or mark.followup.recurred for mark in others),
            ended_in_grace=0 if check in counted else ended_in_grace.get(check, 0),
        )
        counted.add(check)


def _order(result: PolicyCheckResult) -> tuple[int, int, str, str]:
    return -result.marked, -result.withheld - result.dry_run, result.check, result.mark


def _seconds_within(mark: MarkResult, since: float, until: float) -> float:
    return max(0.0, min(until if mark.end is None else mark.end, until) - max(mark.start, since))


def _marked_time(marked: Iterable[MarkResult], since: float, until: float) -> tuple[int, float, float]:
    """Return the most nodes that were marked at one time, when first, and the seconds of all nodes."""
    changes = []
    for mark in marked:
        start, seconds = max(mark.start, since), _seconds_within(mark, since, until)
        changes += [(start, 1, mark.request.uid), (start + seconds, -1, mark.request.uid)]
    active: Counter[str] = Counter()
    most, most_at, total, before = 0, 0.0, 0.0, since
    for time, change, uid in sorted(changes):
        total += len(active) * (time - before)
        before = time
        active[uid] += change
        if not active[uid]:
            del active[uid]
        if len(active) > most:
            most, most_at = len(active), time
    return most, most_at, total
