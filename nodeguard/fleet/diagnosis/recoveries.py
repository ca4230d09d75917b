"""Findings that remain when a worse one of the same target ends: they are a recovery and no onset. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from nodeguard.wire.report import ReportedFinding


def is_recovery(
    check: str,
    previous: Iterable[ReportedFinding],
    current: Iterable[ReportedFinding],
    are_related: Callable[[str, str], bool],
) -> bool:
    """Return whether all findings of a new check only remain after worse ones that have ended.

    A check is hidden while it is the symptom of another: `port-link-downed` appears when `port-down` ends.
    A check that appears beside the worse one was not hidden. previous, current: all findings of a node's two
    latest reports; the current one has the check. are_related: returns whether two checks have a fault class
    in common.
    """
    previous, current = tuple(previous), tuple(current)
    return all(
        any(
            worse.health.rank > finding.health.rank
            and are_related(worse.check, finding.check)
            and not _targets(finding).isdisjoint(_ended(worse, current))
            for worse in previous
        )
        for finding in current
        if finding.check == check
    )


def _ended(finding: ReportedFinding, current: Iterable[ReportedFinding]) -> frozenset[str]:
    """Return the targets on which a finding is no longer reported."""
    remaining = (other for other in current if other.check == finding.check)
    return _targets(finding).difference(*(_targets(other) for other in remaining))


def _targets(finding: ReportedFinding) -> frozenset[str]:
    return frozenset((finding.target, *finding.targets))
