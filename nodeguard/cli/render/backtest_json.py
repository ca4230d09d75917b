"""JSON of nodeguard backtest. Version 1: fields may be added, none is removed or changes its meaning."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec
from msgspec import Struct

from nodeguard.backtest.backtest import BacktestResult
from nodeguard.backtest.mark_results import Followup, MarkResult, PolicyCheckResult
from nodeguard.backtest.mark_tracker import MarkEnd
from nodeguard.backtest.policy_difference import compare_policies
from nodeguard.backtest.policy_result import DomainResult, PolicyResult
from nodeguard.model.incident import IncidentState
from nodeguard.model.instant import rfc3339
from nodeguard.model.mark import Mark


class MarkOutput(Struct, frozen=True):
    """A mark that was set, withheld, or only a dry run, and what happened next.

    state: `Marked`, `Withheld`, `DryRun`, or `Open`: the mark of a degraded domain covers it. from, until:
    RFC 3339; until is null while the mark is active. ended: see mark_tracker.MarkEnd. reasons: why it was
    withheld. next: see mark_results.Followup; lasted in seconds.
    """

    node: str
    uid: str
    pool: str
    check: str
    target: str
    mark: Mark
    state: IncidentState
    began: str = msgspec.field(name="from")
    until: str | None = None
    ended: MarkEnd = MarkEnd.OPEN
    reasons: tuple[str, ...] = ()
    next: Followup = Followup()


class DomainOutput(Struct, frozen=True):
    """A degraded domain.

    incident: name of its incident. state: `Marked`, `Withheld` or `DryRun`. from, until: RFC 3339; until is
    null while it is degraded. size: its nodes; voters: those that showed the fault; nodes: those that were
    marked, for node_hours in total. reasons: why it was withheld, or would be.
    """

    incident: str
    domain: str
    fault_classes: tuple[str, ...]
    state: IncidentState
    size: int
    voters: int
    nodes: int
    node_hours: float
    evidence: str
    began: str = msgspec.field(name="from")
    until: str | None = None
    reasons: tuple[str, ...] = ()


class ReasonOutput(Struct, frozen=True):
    """A reason why marks were withheld, and their number."""

    reason: str
    marks: int


class PolicyResultOutput(Struct, frozen=True):
    """The marks of a policy. node_hours: for which nodes were marked. max_marked, most_at: the most nodes
    that were marked at one time, and when (RFC 3339). checks: see mark_results.PolicyCheckResult. domains:
    degraded ones; domain_nodes, domain_node_hours, max_domain_nodes: figures of their marks.
    """

    file: str
    nodes: int
    node_hours: float
    max_marked: int
    most_at: str | None
    checks: tuple[PolicyCheckResult, ...]
    reasons: tuple[ReasonOutput, ...]
    marks: tuple[MarkOutput, ...]
    domains: tuple[DomainOutput, ...]
    domain_nodes: int
    domain_node_hours: float
    max_domain_nodes: int


class DifferenceOutput(Struct, frozen=True):
    """The difference between two policies. first, second: marks of one policy only; both: number of marks of
    both. first_covered, second_covered: number of these marks where the mark of a domain covers the fault
    under the other policy.

    first_domains, second_domains: domains that are degraded, or marked, under one policy only; both_domains:
    number of those under both. first_domain_nodes, second_domain_nodes: number of nodes with the mark of a
    domain under one policy only.
    """

    first: tuple[MarkOutput, ...]
    second: tuple[MarkOutput, ...]
    both: int
    first_covered: int
    second_covered: int
    first_domains: tuple[DomainOutput, ...]
    second_domains: tuple[DomainOutput, ...]
    both_domains: int
    first_domain_nodes: int
    second_domain_nodes: int


class BacktestOutput(Struct, frozen=True):
    """Output of nodeguard backtest -o json. difference: null with one policy."""

    version: Literal[1]
    since: str
    until: str
    nodes: int
    transitions: int
    policies: tuple[PolicyResultOutput, ...]
    difference: DifferenceOutput | None


def as_output(files: Sequence[str], result: BacktestResult) -> BacktestOutput:
    """Return a backtest as a document."""
    return BacktestOutput(
        version=1,
        since=rfc3339(result.since),
        until=rfc3339(result.until),
        nodes=result.nodes,
        transitions=result.recent_reports,
        policies=tuple(_policy(file, account) for file, account in zip(files, result.results, strict=True)),
        difference=_difference(*result.results) if len(result.results) == 2 else None,
    )


def _policy(file: str, account: PolicyResult) -> PolicyResultOutput:
    return PolicyResultOutput(
        file=file,
        nodes=account.nodes,
        node_hours=round(account.seconds / 3600.0, 3),
        max_marked=account.max_marked,
        most_at=rfc3339(account.max_marked_at) if account.max_marked else None,
        checks=account.checks,
        reasons=tuple(ReasonOutput(reason, count) for reason, count in account.reasons),
        marks=_marks(account.marks),
        domains=tuple(_domain(domain) for domain in account.domains),
        domain_nodes=account.domain_nodes,
        domain_node_hours=round(account.domain_seconds / 3600.0, 3),
        max_domain_nodes=account.max_domain_nodes,
    )


def _domain(domain: DomainResult) -> DomainOutput:
    return DomainOutput(
        incident=domain.incident,
        domain=domain.domain,
        fault_classes=domain.fault_classes,
        state=domain.state,
        size=domain.size,
        voters=domain.voters,
        nodes=domain.nodes,
        node_hours=round(domain.seconds / 3600.0, 3),
        evidence=domain.evidence,
        began=rfc3339(domain.start),
        until=None if domain.end is None else rfc3339(domain.end),
        reasons=domain.reasons,
    )


def _difference(first: PolicyResult, second: PolicyResult) -> DifferenceOutput:
    found = compare_policies(first, second)
    return DifferenceOutput(
        first=_marks(found.first.marks),
        second=_marks(found.second.marks),
        both=len(found.marks),
        first_covered=found.first.covered,
        second_covered=found.second.covered,
        first_domains=tuple(_domain(domain) for domain in found.first.domains),
        second_domains=tuple(_domain(domain) for domain in found.second.domains),
        both_domains=found.domains,
        first_domain_nodes=found.first.domain_nodes,
        second_domain_nodes=found.second.domain_nodes,
    )


def _marks(entries: Iterable[MarkResult]) -> tuple[MarkOutput, ...]:
    return tuple(
        MarkOutput(
            node=entry.request.node,
            uid=entry.request.uid,
            pool=entry.request.pool,
            check=entry.request.check,
            target=entry.request.target,
            mark=entry.request.mark,
            state=entry.state,
            began=rfc3339(entry.start),
            until=None if entry.end is None else rfc3339(entry.end),
            ended=entry.end_reason,
            reasons=entry.reasons,
            next=entry.followup,
        )
        for entry in entries
    )
