"""Findings that remain when a worse one of the same target ends: they are a recovery and no onset. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from nodeguard.wire.report import ReportedFinding


def is_recovery(
    findings: Iterable[ReportedFinding],
    before: Iterable[ReportedFinding],
    are_related: Callable[[str, str], bool],
) -> bool:
    """Return whether all new findings of a check only remain after worse ones.

    A check is hidden while it is the symptom of another: `port-link-downed` appears when `port-down` ends.
    before: the findings of the report before. are_related: returns whether two checks have a fault class in
    common.
    """
    before = tuple(before)
    return all(
        any(
            worse.health.rank > finding.health.rank
            and not _targets(worse).isdisjoint(_targets(finding))
            and are_related(worse.check, finding.check)
            for worse in before
        )
        for finding in findings
    )


def _targets(finding: ReportedFinding) -> frozenset[str]:
    return frozenset((finding.target, *finding.targets))
