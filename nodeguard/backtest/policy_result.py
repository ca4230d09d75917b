"""What a policy comes to, held against what happened next. Pure."""

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
    """What happened next to a finding for which a mark was set, or not.

    over: how it ended, and lasted: after how many seconds from then on; None where it has not. brief: whether
    it ended by itself, and within the first soak: the mark kept a node from work that soon was well. again:
    whether the same was found within the time after which a soak forgets. worse: whether what was suspect
    was found to be fatal, then or within that time after.
    """

    finding_end: EpisodeEnd = EpisodeEnd.OPEN
    seconds: float | None = None
    brief: bool = False
    recurred: bool = False
    escalated: bool = False


class MarkResult(Struct, frozen=True):
    """A span within the time that is looked at, and what happened next. Fields as in marks.Span."""

    request: RequestedMark
    state: IncidentState
    start: float
    end: float | None
    end_reason: MarkEnd
    followup: Followup
    reasons: tuple[str, ...] = ()


class CheckResult(Struct, frozen=True):
    """What one check came to, for one kind of mark.

    marked: marks that were set, on so many nodes, for so many seconds together. brief, again, worse: of
    these, see Next. withheld, observed: how many were asked for and not set. spared: of
    these, how many were over by themselves within the first soak, for good; missed: how many were found to be
    fatal, or found again. settled: how many were over before they settled, counted by check alone.
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
    """What a policy comes to from one moment to another, in seconds since the epoch.

    entries: by their beginning. checks: what took out most first. nodes: that were marked; seconds: for which
    they were, all together, each once at a time. most: nodes marked at a time, and at: when. reasons: why
    marks were withheld, the most frequent first.
    """

    since: float
    until: float
    marks: tuple[MarkResult, ...]
    checks: tuple[CheckResult, ...]
    nodes: int
    seconds: float
    max_marked: int
    max_marked_at: float
    reasons: tuple[tuple[str, int], ...]


def policy_result(
    marks: MarkTracker, spells: FindingEpisodes, policy: Policy, since: float, until: float
) -> PolicyResult:
    """What came of a replay. Spans that were over before the time that is looked at are left out."""
    entries = tuple(
        MarkResult(
            one.request, one.state, one.start, one.end, one.end_reason,
            _next(one, spells.by_node.get(one.request.uid, ()), policy.soak), tuple(one.reasons),
        )
        for one in marks.spans
        if (one.end is None or one.end > since) and one.start <= until
    )  # fmt: skip
    marked = [one for one in entries if one.state == IncidentState.MARKED]
    whys = Counter(why for one in entries if one.state == IncidentState.WITHHELD for why in one.reasons)
    most, at, seconds = _out(marked, since, until)
    return PolicyResult(
        since=since,
        until=until,
        marks=entries,
        checks=tuple(sorted(_checks(entries, marks.ended_in_grace, since, until), key=_order)),
        nodes=len({one.request.uid for one in marked}),
        seconds=seconds,
        max_marked=most,
        max_marked_at=at,
        reasons=tuple(sorted(whys.items(), key=lambda each: (-each[1], each[0]))),
    )


def _next(span: MarkSpan, spells: Sequence[FindingEpisode], soak: SoakPeriod) -> Followup:
    asked = span.request
    alike = [one for one in spells if (one.check, one.target) == (asked.check, asked.target)]
    # A mark may come a moment before the report of what it is for is accounted, never after its end.
    of = [one for one in alike if one.start <= span.start]
    if not of:
        return Followup()
    spell = of[-1]
    ended = spell.end if spell.end is not None and spell.end > span.start else None
    lasted = None if ended is None else ended - span.start
    again = ended is not None and any(
        0 <= one.start - ended <= soak.forget for one in alike if one is not spell
    )
    worse = False
    if asked.mark == Mark.SUSPECT:
        last = (span.end or ended or float("inf")) + soak.forget
        worse = any(
            one.fatal_since is not None and span.start < one.fatal_since <= last
            for one in spells
            if one.failed_target == resource_of(asked.target)
        )
    brief = spell.end_reason == EpisodeEnd.RESOLVED and lasted is not None and lasted <= soak.first
    return Followup(spell.end_reason if ended is not None else EpisodeEnd.OPEN, lasted, brief, again, worse)


def _checks(
    entries: Iterable[MarkResult], settled: Mapping[str, int], since: float, until: float
) -> Iterator[CheckResult]:
    of: dict[tuple[str, Mark], list[MarkResult]] = defaultdict(list)
    for one in entries:
        of[one.request.check, one.request.mark].append(one)
    told = set()
    for (check, mark), found in of.items():
        marked = [one for one in found if one.state == IncidentState.MARKED]
        others = [
            one for one in found if one.state != IncidentState.MARKED and one.end_reason != MarkEnd.MARKED
        ]
        yield CheckResult(
            check=check,
            mark=mark,
            marked=len(marked),
            nodes=len({one.request.uid for one in marked}),
            seconds=sum(_within(one, since, until) for one in marked),
            brief=sum(one.followup.brief for one in marked),
            recurred=sum(one.followup.recurred for one in marked),
            escalated=sum(one.followup.escalated for one in marked),
            withheld=sum(one.state == IncidentState.WITHHELD for one in found),
            dry_run=sum(one.state == IncidentState.DRY_RUN for one in found),
            spared=sum(one.followup.brief and not one.followup.recurred for one in others),
            missed=sum(one.followup.escalated or one.followup.recurred for one in others),
            ended_in_grace=0 if check in told else settled.get(check, 0),
        )
        told.add(check)


def _order(one: CheckResult) -> tuple[int, int, str, str]:
    return -one.marked, -one.withheld - one.dry_run, one.check, one.mark


def _within(one: MarkResult, since: float, until: float) -> float:
    return max(0.0, min(until if one.end is None else one.end, until) - max(one.start, since))


def _out(marked: Iterable[MarkResult], since: float, until: float) -> tuple[int, float, float]:
    """Nodes that were marked at a time at most, when first, and the seconds of all, each once at a time."""
    changes = []
    for one in marked:
        begins, lasts = max(one.start, since), _within(one, since, until)
        changes += [(begins, 1, one.request.uid), (begins + lasts, -1, one.request.uid)]
    standing: Counter[str] = Counter()
    most, at, total, before = 0, 0.0, 0.0, since
    for moment, by, uid in sorted(changes):
        total += len(standing) * (moment - before)
        before = moment
        standing[uid] += by
        if not standing[uid]:
            del standing[uid]
        if len(standing) > most:
            most, at = len(standing), moment
    return most, at, total
