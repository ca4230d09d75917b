"""Result of a policy: its marks, and the domains that it found degraded. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from msgspec import Struct, field
from msgspec.structs import asdict

from nodeguard.backtest.domain_tracker import DomainSpan
from nodeguard.backtest.drain_tracker import ReplayedDrain
from nodeguard.backtest.finding_episodes import FindingEpisodes
from nodeguard.backtest.fleet_replay import FleetReplay
from nodeguard.backtest.mark_results import (
    MarkResult,
    NodeSeconds,
    PolicyCheckResult,
    check_results,
    followup_of,
    seconds_within,
)
from nodeguard.model.incident import IncidentState
from nodeguard.model.instant import Timestamp
from nodeguard.model.policy import Policy
from nodeguard.model.projection import project


class CountedNodes:
    """Nodes by uid, of which JSON has the number."""

    def __init__(self, uids: Iterable[str]) -> None:
        self.uids = frozenset(uids)

    def as_json(self) -> int:
        """Return the value in JSON."""
        return len(self.uids)


class DomainResult(Struct, frozen=True):
    """A degraded domain within the time range. incident: name of its incident. marked: the nodes that were
    marked; seconds: for which they were within the time range, in total. Other fields as in DomainSpan.
    """

    incident: str
    domain: str
    fault_classes: tuple[str, ...]
    state: IncidentState
    size: int
    voters: int
    marked: CountedNodes = field(name="nodes")
    seconds: NodeSeconds = field(name="node_hours")
    evidence: str
    start: Timestamp = field(name="from")
    end: Timestamp | None = field(name="until")
    reasons: tuple[str, ...] = ()

    @property
    def nodes(self) -> int:
        """Return the number of nodes that were marked."""
        return len(self.marked.uids)

    @property
    def is_marked(self) -> bool:
        """Return whether its nodes were marked."""
        return self.state == IncidentState.MARKED


class WithheldReason(Struct, frozen=True):
    """A reason why marks were withheld, and their number."""

    reason: str
    marks: int


class PolicyResult(Struct, frozen=True, kw_only=True):
    """Result of a policy over a time range. file: of the policy, empty for none.

    nodes: that were marked; seconds: for which they were, in total, each once at a time. max_marked: nodes at
    one time, and max_marked_at: when first; None for never. checks: those with most marks first. reasons: the
    most frequent first. marks: in the order of their start. domains: degraded ones, in the order of their
    start. domain_nodes, domain_seconds, max_domain_nodes: the same figures for the marks of domains. drains:
    in the order of their requests.
    """

    file: str = ""
    nodes: int
    seconds: NodeSeconds = field(name="node_hours")
    max_marked: int
    max_marked_at: Timestamp | None = field(name="most_at")
    checks: tuple[PolicyCheckResult, ...]
    reasons: tuple[WithheldReason, ...]
    marks: tuple[MarkResult, ...]
    domains: tuple[DomainResult, ...]
    domain_nodes: int
    domain_seconds: NodeSeconds = field(name="domain_node_hours")
    max_domain_nodes: int
    drains: tuple[ReplayedDrain, ...] = ()


def policy_result(
    replay: FleetReplay,
    episodes: FindingEpisodes,
    policy: Policy,
    since: float,
    until: float,
) -> PolicyResult:
    """Return the result of a replay. Marks and domains that ended before the time range are left out, and
    drains that were requested before it.
    """
    marks = tuple(
        MarkResult(
            **asdict(span.request),
            state=span.state,
            start=Timestamp(span.start),
            end=_timestamp(span.end),
            end_reason=span.end_reason,
            reasons=tuple(span.reasons),
            followup=followup_of(span, episodes.by_node.get(span.request.uid, ()), policy.soak),
        )
        for span in replay.marks.spans
        if _is_within(span.start, span.end, since, until)
    )
    marked = [mark for mark in marks if mark.state == IncidentState.MARKED]
    reasons = Counter(
        reason for mark in marks if mark.state == IncidentState.WITHHELD for reason in mark.reasons
    )
    times = [(mark.uid, mark.start, mark.end) for mark in marked]
    max_marked, max_marked_at, seconds = _marked_time(times, since, until)
    domains = [span for span in replay.domains.spans if _is_within(span.start, span.end, since, until)]
    domain_times = [time for span in domains for time in _times(span, since, until)]
    max_domain_nodes, _, domain_seconds = _marked_time(domain_times, since, until)
    return PolicyResult(
        marks=marks,
        checks=tuple(sorted(check_results(marks, replay.marks.ended_in_grace, since, until), key=_order)),
        nodes=len({mark.uid for mark in marked}),
        seconds=NodeSeconds(seconds),
        max_marked=max_marked,
        max_marked_at=Timestamp(max_marked_at) if max_marked else None,
        reasons=tuple(
            WithheldReason(reason, count)
            for reason, count in sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
        ),
        domains=tuple(_domain_result(span, since, until) for span in domains),
        domain_nodes=len({uid for uid, _, _ in domain_times}),
        domain_seconds=NodeSeconds(domain_seconds),
        max_domain_nodes=max_domain_nodes,
        drains=tuple(drain for drain in replay.drains.drains if since <= drain.requested <= until),
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
    return project(
        DomainResult,
        span,
        marked=CountedNodes(uid for uid, _, _ in times),
        seconds=NodeSeconds(sum(seconds_within(start, end, since, until) for _, start, end in times)),
        start=Timestamp(span.start),
        end=_timestamp(span.end),
        reasons=tuple(span.reasons),
    )


def _timestamp(time: float | None) -> Timestamp | None:
    return None if time is None else Timestamp(time)


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
