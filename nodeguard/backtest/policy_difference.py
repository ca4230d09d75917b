"""Difference between two policies on the same steps: in their marks and in their degraded domains. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from nodeguard.backtest.mark_results import MarkResult
from nodeguard.backtest.policy_result import DomainResult, PolicyResult
from nodeguard.model.incident import IncidentState


class OnlyUnderOne(Struct, frozen=True):
    """What only one of two policies does.

    marks: those that only it sets; covered: number of these where the mark of a domain covers the fault under
    the other. domains: degraded under it only, or marked under it only. domain_nodes: number of nodes with
    the mark of a domain under it only.
    """

    marks: tuple[MarkResult, ...]
    covered: int
    domains: tuple[DomainResult, ...]
    domain_nodes: int


class PolicyDifference(Struct, frozen=True):
    """What only the first or only the second policy does.

    marks: pairs of marks that both set at a common time. domains: number of the domains that are degraded
    under both, and marked under both or none.
    """

    first: OnlyUnderOne
    second: OnlyUnderOne
    marks: tuple[tuple[MarkResult, MarkResult], ...]
    domains: int


def compare_policies(first: PolicyResult, second: PolicyResult) -> PolicyDifference:
    """Return the difference between two policies on the same steps."""
    in_first, in_second = _by_finding(first.marks, _MARKED), _by_finding(second.marks, _MARKED)
    pairs = ((mark, _overlapping(mark, in_second)) for marks in in_first.values() for mark in marks)
    both = [(mark, other) for mark, other in pairs if other is not None]
    both.sort(key=lambda pair: pair[0].start)
    alike = sum(
        any(domain.is_marked == other.is_marked for other in _same_domains(domain, second.domains))
        for domain in first.domains
    )
    return PolicyDifference(
        _only(first, second, in_first, in_second),
        _only(second, first, in_second, in_first),
        tuple(both),
        alike,
    )


# A finding that asks for a mark: uid, check, target and kind of the mark.
_Finding = tuple[str, str, str, str]
_ByFinding = Mapping[_Finding, Sequence[MarkResult]]

_MARKED = IncidentState.MARKED

# The state of a request that the mark of a domain covers.
_COVERED = IncidentState.OPEN


def _only(
    policy: PolicyResult, other: PolicyResult, marks: _ByFinding, other_marks: _ByFinding
) -> OnlyUnderOne:
    """Return what only a policy does, and not the other one."""
    covered = _by_finding(other.marks, _COVERED)
    only = [
        mark
        for same_finding in marks.values()
        for mark in same_finding
        if _overlapping(mark, other_marks) is None
    ]
    only.sort(key=lambda mark: mark.start)
    return OnlyUnderOne(
        tuple(only),
        sum(_overlapping(mark, covered) is not None for mark in only),
        tuple(_only_domains(policy.domains, other.domains)),
        len(_marked_nodes(policy.domains) - _marked_nodes(other.domains)),
    )


def _by_finding(marks: Iterable[MarkResult], state: IncidentState) -> _ByFinding:
    by_finding: dict[_Finding, list[MarkResult]] = defaultdict(list)
    for mark in marks:
        if mark.state == state:
            by_finding[mark.uid, mark.check, mark.target, mark.mark].append(mark)
    return by_finding


def _overlapping(mark: MarkResult, others: _ByFinding) -> MarkResult | None:
    """Return the first of some marks for the same finding at a common time; None for none."""
    same = others.get((mark.uid, mark.check, mark.target, mark.mark), ())
    return next((other for other in same if _overlap(mark, other)), None)


def _only_domains(domains: Iterable[DomainResult], others: Sequence[DomainResult]) -> Iterator[DomainResult]:
    """Yield the domains that are not degraded among others, or are marked and not marked there."""
    for domain in domains:
        same = list(_same_domains(domain, others))
        if not same or (domain.is_marked and not any(other.is_marked for other in same)):
            yield domain


def _same_domains(domain: DomainResult, others: Iterable[DomainResult]) -> Iterator[DomainResult]:
    """Yield the domains that were degraded at a common time: the same one, a part of it, or a parent."""
    for other in others:
        paths = f"{domain.domain}/", f"{other.domain}/"
        if (paths[0].startswith(paths[1]) or paths[1].startswith(paths[0])) and _overlap(domain, other):
            yield other


def _marked_nodes(domains: Iterable[DomainResult]) -> frozenset[str]:
    return frozenset(uid for domain in domains for uid in domain.marked.uids)


def _overlap(result: MarkResult | DomainResult, other: MarkResult | DomainResult) -> bool:
    ends = (float("inf") if span.end is None else span.end for span in (result, other))
    end, other_end = ends
    return result.start < other_end and other.start < end
