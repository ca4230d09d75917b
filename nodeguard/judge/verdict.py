"""Verdict of a node: its overall health and data status, from the results of all its targets. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from nodeguard.judge.fold import attach_symptoms, fold_findings, root_causes, sort_findings, worst_health
from nodeguard.judge.rules import PassedChecks, Rules
from nodeguard.judge.state import SourceStatus, TargetResult, TargetState
from nodeguard.model.finding import (
    CounterTotal,
    DataStatus,
    Finding,
    Health,
    PassedFamily,
    PassingChecks,
    ReadFailure,
    Verdict,
    worst,
)
from nodeguard.model.observation import DERIVED, DETACHED
from nodeguard.model.target import NODE, pci_target, target_kind, target_order

# The source that must have read a target of this kind before its checks count as passed. A GPU that only the
# PCI bus or the log names has passed nothing.
_REQUIRED_SOURCE = {"gpu": "nvml"}

_NO_FAMILY: frozenset[str] = frozenset()


def compute_verdict(
    rules: Rules,
    results: Mapping[str, TargetResult],
    sources: Mapping[str, SourceStatus],
    platform: str,
    is_selected: Callable[[str], bool] | None = None,
) -> Verdict:
    """Return the node's verdict. results: by target. platform: id of the matched platform, or empty.

    is_selected: whether a target is part of the verdict; None for all. The cause of a fault on a selected
    target is part of it wherever it is.
    """
    active = _active_findings(rules, results, is_selected)
    if is_selected is not None:
        results = {target: result for target, result in results.items() if is_selected(target)}
    counts = Counter(map(target_kind, results))
    findings = fold_findings((finding for finding in active if finding.health != Health.OK), counts)
    past = (finding for result in results.values() for finding in result.past_findings)
    ok = (finding for finding in active if finding.health == Health.OK)
    noted = fold_findings((*ok, *past), counts)
    unread = _unread(results, sources)
    data_status = [DataStatus.UNKNOWN] if unread else [DataStatus.FRESH]
    if _has_released(results, sources):
        data_status.append(DataStatus.NOT_APPLICABLE)
    passing = _passing_groups(rules, results)
    return Verdict(
        health=worst_health(findings),
        data_status=worst(*data_status, *(finding.data_status for finding in findings)),
        findings=sort_findings(findings),
        informational=sort_findings(noted),
        read_failures=unread,
        passed=_passed_by_family(passing),
        passing=_passed_by_check(passing),
        counter_totals=tuple(
            CounterTotal(name, target, value)
            for target in sorted(name for name, result in results.items() if result.pending)
            for name, value in sorted(results[target].pending.items())
            if value
        ),
        evaluated=sum(result.passed_rules.bit_count() + len(result.findings) for result in results.values()),
        platform=platform,
    )


def _active_findings(
    rules: Rules, results: Mapping[str, TargetResult], is_selected: Callable[[str], bool] | None
) -> list[Finding]:
    """Return the active findings of all or the selected targets, with symptoms merged into their causes."""
    findings = [finding for result in results.values() for finding in result.findings]
    if not findings:
        return []
    depends_on = dependencies({name: result.state for name, result in results.items()})
    if is_selected is not None:
        active = {(finding.check, finding.target): finding for finding in findings}
        causes = root_causes(active, rules.checks, depends_on)
        selected = {causes.get(key, key) for key in active if is_selected(key[1])}
        findings = [active[key] for key in active if causes.get(key, key) in selected]
    return attach_symptoms(findings, rules.checks, depends_on)


def _has_released(results: Mapping[str, TargetResult], sources: Mapping[str, SourceStatus]) -> bool:
    """Return whether a source or a signal is not read on an operator's request."""
    return any(status.status == "detached" for status in sources.values()) or any(
        reason == DETACHED for result in results.values() for _, _, reason in result.unreadable
    )


def dependencies(targets: Mapping[str, TargetState]) -> dict[str, str]:
    """Return the target that each target depends on, besides its parent.

    A file system depends on its disk and a port on its PCI function. A function that lost its port depends on
    the port that the log last named with it.
    """
    result: dict[str, str] = {}
    for name, target in targets.items():
        if not name.startswith(("fs:", "port/")):
            continue
        for snapshot in target.sources.values():
            if "fs.disk" in snapshot.signals:
                result[name] = str(snapshot.signals["fs.disk"])
            if "port.pci" in snapshot.signals:
                result[name] = pci_target(str(snapshot.signals["port.pci"]))
        if target_kind(name) == "port":
            addresses = (event.fields.get("pci") for event in target.events.values())
            result.update({pci_target(str(address)): name for address in addresses if address})
    return result


def _unread(
    results: Mapping[str, TargetResult], sources: Mapping[str, SourceStatus]
) -> tuple[ReadFailure, ...]:
    """Return the data that could not be read: whole sources first, then signals, grouped by reason.

    Derived signals are included only where no source explains them.
    """
    whole = [
        ReadFailure(name, (NODE,), name, status.detail)
        for name, status in sorted(sources.items())
        if status.status in {"failed", "hung"}
    ]
    groups: dict[tuple[str, str], tuple[set[str], set[str]]] = defaultdict(lambda: (set(), set()))
    for target, result in results.items():
        for source, signal, reason in result.unreadable:
            is_read = sources.get(source, SourceStatus("read", 0)).status == "read"
            if source and reason != DETACHED and is_read:
                targets, signals = groups[source, reason]
                targets.add(target)
                signals.add(signal)
    rows = [
        ReadFailure(source, tuple(sorted(targets, key=target_order)), ", ".join(sorted(signals)), reason)
        for (source, reason), (targets, signals) in sorted(groups.items())
    ]
    read = [row for row in rows if row.source != DERIVED]
    return (*whole, *(read if whole or read else rows))


class _PassingGroup(NamedTuple):
    """Targets of one kind that passed the same checks. failing: families with an active finding on them."""

    kind: str
    checks: PassedChecks
    failing: frozenset[str]
    targets: tuple[str, ...]


def _passing_groups(rules: Rules, results: Mapping[str, TargetResult]) -> list[_PassingGroup]:
    """Return the targets that passed at least one check, in the order of the first of each group."""
    groups: dict[tuple[str, int, frozenset[str]], list[str]] = defaultdict(list)
    for target, result in results.items():
        kind = target_kind(target)
        if result.passed_rules and (kind not in _REQUIRED_SOURCE or _is_read(kind, result)):
            failing = _failing_families(result.findings) if result.findings else _NO_FAMILY
            groups[kind, result.passed_rules, failing].append(target)
    return sorted(
        (
            _PassingGroup(
                kind, rules.passed_checks(kind, passed), failing, tuple(sorted(targets, key=target_order))
            )
            for (kind, passed, failing), targets in groups.items()
        ),
        key=lambda group: target_order(group.targets[0]),
    )


def _failing_families(findings: Iterable[Finding]) -> frozenset[str]:
    return frozenset(finding.family for finding in findings if finding.health != Health.OK)


def _is_read(kind: str, result: TargetResult) -> bool:
    """Return whether the source that must read targets of a kind has read this one."""
    snapshot = result.state.sources.get(_REQUIRED_SOURCE[kind])
    return bool(snapshot and snapshot.signals)


def _passed_by_check(groups: Iterable[_PassingGroup]) -> tuple[PassingChecks, ...]:
    """Return the targets on which each check passed, including those with another finding of its family."""
    return tuple(PassingChecks(group.checks.ids, group.targets) for group in groups)


def _passed_by_family(groups: Iterable[_PassingGroup]) -> tuple[PassedFamily, ...]:
    """Return the passed checks by family, and their targets without a finding of the family."""
    checks: dict[str, set[str]] = defaultdict(set)
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for group in groups:
        for family, passed in group.checks.by_family.items():
            if family not in group.failing:
                checks[family] |= passed
                counts[family][group.kind] += len(group.targets)
    return tuple(PassedFamily(family, len(checks[family]), dict(counts[family])) for family in sorted(checks))
