"""JSON of nodeguard backtest. Version 1: fields may be added, none is removed or changes its meaning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.backtest.backtest import BacktestResult
from nodeguard.backtest.policy_difference import compare_policies
from nodeguard.backtest.policy_result import PolicyResult
from nodeguard.model.instant import Timestamp


class BacktestOutput(Struct, frozen=True):
    """Output of nodeguard backtest -o json. difference: null with one policy."""

    version: Literal[1]
    since: Timestamp
    until: Timestamp
    nodes: int
    transitions: int
    policies: tuple[PolicyResult, ...]
    difference: dict[str, object] | None


def as_output(files: Sequence[str], result: BacktestResult) -> BacktestOutput:
    """Return a backtest as a document."""
    return BacktestOutput(
        version=1,
        since=Timestamp(result.since),
        until=Timestamp(result.until),
        nodes=result.nodes,
        transitions=result.recent_reports,
        policies=tuple(
            replace(account, file=file) for file, account in zip(files, result.results, strict=True)
        ),
        difference=_difference(*result.results) if len(result.results) == 2 else None,
    )


def _difference(first: PolicyResult, second: PolicyResult) -> dict[str, object]:
    """Return the difference between two policies, in one level.

    first, second: marks of one policy only; both: number of marks of both. first_covered, second_covered:
    number of these marks where the mark of a domain covers the fault under the other policy. first_domains,
    second_domains: domains that are degraded, or marked, under one policy only; both_domains: number of those
    under both. first_domain_nodes, second_domain_nodes: number of nodes with the mark of a domain under one
    policy only.
    """
    difference = compare_policies(first, second)
    return {
        "first": difference.first.marks,
        "second": difference.second.marks,
        "both": len(difference.marks),
        "first_covered": difference.first.covered,
        "second_covered": difference.second.covered,
        "first_domains": difference.first.domains,
        "second_domains": difference.second.domains,
        "both_domains": difference.domains,
        "first_domain_nodes": difference.first.domain_nodes,
        "second_domain_nodes": difference.second.domain_nodes,
    }
