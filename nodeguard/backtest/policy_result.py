"""Result of a policy: its marks, and the domains that it found degraded. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from msgspec import Struct

from nodeguard.backtest.domain_tracker import DomainSpan, DomainTracker
from nodeguard.backtest.finding_episodes import FindingEpisodes
from nodeguard.backtest.mark_results import (
    MarkResult,
    PolicyCheckResult,
    check_results,
    followup_of,
    seconds_within,
)
from nodeguard.backtest.mark_tracker import MarkTracker
from nodeguard.model.incident import IncidentState
from nodeguard.model.policy import Policy


class DomainResult(Struct, frozen=True):
    """A degraded domain within the time range. incident: name of its incident. marked_uids: of the nodes that
    were marked; seconds: for which they were within the time range, in total. Other fields as in DomainSpan.
    """

    incident: str
    domain: str
    fault_classes: tuple[str, ...]
    state: IncidentState
    start: float
    end: float | None
    size: int
    voters: int
    marked_uids: frozenset[str]
    seconds: float
    evidence: str
    reasons: tuple[str, ...] = ()

    @property
    def nodes(self) -> int:
        """Return the number of nodes that were marked."""
        return len(self.marked_uids)

    @property
    def is_marked(self) -> bool:
        """Return whether its nodes were marked."""
        return self.state == IncidentState.MARKED


class PolicyResult(Struct, frozen=True):
    """Result of a policy over a time range, in seconds since the epoch.

    marks: in the order of their start. checks: those with most marks first. nodes: that were marked; seconds:
    for which they were, in total, each once at a time. max_marked: nodes at one time, and max_marked_at: when
    first. reasons: why marks were withheld, the most frequent first. domains: degraded ones, in the order of
    their start. domain_nodes, domain_seconds, max_domain_nodes: the same figures for the marks of domains.
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
    domains: tuple[DomainResult, ...]
    domain_nodes: int
    domain_seconds: float
    max_domain_nodes: int


def policy_result(
    tracker: MarkTracker,
    domain_tracker: DomainTracker,
    episodes: FindingEpisodes,
    policy: Policy,
    since: float,
    until: float,
) -> PolicyResult:
    """Return the result of a replay. Marks and domains that ended before the time range are left out."""
    marks = tuple(
        MarkResult(
            span.request, span.state, span.start, span.end, span.end_reason,
            followup_of(span, episodes.by_node.get(span.request.uid, ()), policy.soak), tuple(span.reasons),
        )
        for span in tracker.spans
        if _is_within(span.start, span.end, since, until)
    )  # fmt: skip
    marked = [mark for mark in marks if mark.state == IncidentState.MARKED]
    reasons = Counter(
        reason for mark in marks if mark.state == IncidentState.WITHHELD for reason in mark.reasons
    )
    times = [(mark.request.uid, mark.start, mark.end) for mark in marked]
    max_marked, max_marked_at, seconds = _marked_time(times, since, until)
    domains = [span for span in domain_tracker.spans if _is_within(span.start, span.end, since, until)]
    domain_times = [time for span in domains for time in _times(span, since, until)]
    max_domain_nodes, _, domain_seconds = _marked_time(domain_times, since, until)
    return PolicyResult(
        since=since,
        until=until,
        marks=marks,
        checks=tuple(sorted(check_results(marks, tracker.ended_in_grace, since, until), key=_order)),
        nodes=len({mark.request.uid for mark in marked}),
        seconds=seconds,
        max_marked=max_marked,
        max_marked_at=max_marked_at,
        reasons=tuple(sorted(reasons.items(), key=lambda item: (-item[1], item[0]))),
        domains=tuple(_domain_result(span, since, until) for span in domains),
        domain_nodes=len({uid for uid, _, _ in domain_times}),
        domain_seconds=domain_seconds,
        max_domain_nodes=max_domain_nodes,
    )


def _is_within(start: float, end: float | None, since: float, until: float) -> bool:
    return (end is None or end > since) and start <= until


def _times(span: DomainSpan, since: float, until: float) -> Iterator[_Time]:
    """Yield the times of a domain's marks within the time range."""
    for marked in span.marked:
        if _is_within(marked.start, marked.end, since, until):
            yield marked.uid, marked.start, marked.end


def _domain_result(span: DomainSpan, since: float, until: float) -> DomainResult:
    times = list(_times(span, since, until))
    return DomainResult(
        incident=span.incident,
        domain=span.domain,
        fault_classes=span.fault_classes,
        state=span.state,
        start=span.start,
        end=span.end,
        size=span.size,
        voters=span.voters,
        marked_uids=frozenset(uid for uid, _, _ in times),
        seconds=sum(seconds_within(start, end, since, until) for _, start, end in times),
        evidence=span.evidence,
        reasons=tuple(span.reasons),
    )


def _order(result: PolicyCheckResult) -> tuple[int, int, str, str]:
    return -result.marked, -result.withheld - result.dry_run, result.check, result.mark


# The uid of a marked Node, and the start and end of its mark.
_Time = tuple[str, float, float | None]


def _marked_time(times: Iterable[_Time], since: float, until: float) -> tuple[int, float, float]:
    """Return the most nodes that were marked at one time, when first, and the seconds of all nodes."""
    changes = []
    for uid, mark_start, mark_end in times:
        start, seconds = max(mark_start, since), seconds_within(mark_start, mark_end, since, until)
        changes += [(start, 1, uid), (start + seconds, -1, uid)]
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
