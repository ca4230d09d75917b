"""The latest report of each node, with times of the receiver's clock. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from sys import intern
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.fleet.state.injections import InjectedFault, injected_faults
from nodeguard.model.finding import DataStatus, Health
from nodeguard.model.instant import Instant
from nodeguard.model.mark import MarkCause
from nodeguard.wire.report import (
    VERSION,
    Inventory,
    Report,
    ReportedComponent,
    ReportedFinding,
    ReportedPassing,
    UnreadableTargets,
)
from nodeguard.wire.versions import version_domains

# Maximum findings of one report, the worst first: an agent sends no more. Maximum characters of interned
# tuples.
_FINDINGS = 128
_LETTERS = 4_000_000

# Seconds from a verdict to its transmission above which a report counts as late.
_LATE = 10.0


class LatestReport(Struct, frozen=True):
    """The latest report of a node.

    began: seconds since the epoch, by the receiver's clock, at which each finding began, in their order.
    proven: see `proves`. late: whether it reports an old state, for example from the spool. Until a heartbeat
    confirms a late report, it neither sets nor releases a mark. sequence: number of the message. injections:
    faults that operators injected, which are not among the findings. versions: their domains, see
    `version_domains`. received: seconds since the epoch at which the node received some of them. omitted:
    number of findings that are not among these.
    """

    boot_id: str
    digest: str
    health: Health
    data_status: DataStatus
    findings: tuple[ReportedFinding, ...]
    began: tuple[float, ...]
    proven: tuple[ReportedPassing, ...]
    unread: tuple[UnreadableTargets, ...]
    inventory: Inventory
    agent: str
    catalogue: str
    leaving: bool
    late: bool = False
    sequence: int = 0
    injections: tuple[InjectedFault, ...] = ()
    versions: tuple[str, ...] = ()
    received: dict[str, float] = {}
    omitted: int = 0

    def faults(self) -> Iterator[ReportedFault]:
        """Yield the findings, then the injected faults that the policy accepts."""
        for finding, began in zip(self.findings, self.began, strict=True):
            yield ReportedFault(finding, began)
        for fault in self.injections:
            if not fault.refusal:
                yield ReportedFault(fault.finding, fault.began, injected=True)


class ReportedFault(NamedTuple):
    """A finding of a report, and when it began in seconds since the epoch. injected: by an operator."""

    finding: ReportedFinding
    began: float
    injected: bool = False


class TupleInterner:
    """Stores equal tuples once: nodes of one model report the same checks and targets."""

    def __init__(self) -> None:
        self._interned: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._letters = 0

    def __call__(self, words: tuple[str, ...]) -> tuple[str, ...]:
        """Return the first tuple that is equal to this one."""
        interned = self._interned.get(words)
        if interned is not None:
            return interned
        if self._letters > _LETTERS:
            self._interned.clear()
            self._letters = 0
        self._letters += sum(map(len, words)) + 64 * (len(words) + 1)
        return self._interned.setdefault(words, words)


def latest_report(
    report: Report, instant: Instant, shared: TupleInterner, previous: LatestReport | None = None
) -> LatestReport:
    """Return the state of a report that was received at an instant. Its injected faults are refused until
    `apply_policy` accepts them. previous: of the node; an equal inventory is stored once.
    """
    findings = report.findings[:_FINDINGS]
    is_same = previous is not None and previous.inventory == report.inventory
    return LatestReport(
        boot_id=report.boot_id,
        digest=report.digest,
        health=report.health,
        data_status=report.data_status,
        findings=findings,
        # An age may be any number: no finding began before time 0.
        began=tuple(max(0.0, instant.wall - report.age - finding.age) for finding in findings),
        proven=tuple(
            ReportedPassing(shared(group.checks), shared(group.targets)) for group in report.passing
        ),
        unread=report.unreadable,
        inventory=previous.inventory if previous and is_same else _intern_inventory(report.inventory),
        agent=intern(report.agent),
        catalogue=intern(report.catalogue),
        leaving=report.leaving,
        late=report.age > _LATE,
        sequence=report.sequence,
        injections=injected_faults(report.injections, instant.wall - report.age),
        versions=shared(version_domains(report.inventory, report.agent, report.catalogue)),
        received={path: max(0.0, instant.wall - report.age - age) for path, age in report.received.items()},
        omitted=report.omitted + len(report.findings) - len(findings),
    )


def reported_state(latest: LatestReport, node: str, at: float) -> Report:
    """Return a report with the state of the latest report of a node, with ages at a later time.

    at: seconds since the epoch. Injected faults and omitted findings are left out.
    """
    return Report(
        version=VERSION,
        node=node,
        boot_id=latest.boot_id,
        sequence=latest.sequence,
        health=latest.health,
        data_status=latest.data_status,
        digest=latest.digest,
        agent=latest.agent,
        catalogue=latest.catalogue,
        findings=tuple(
            replace(finding, age=max(0.0, at - began))
            for finding, began in zip(latest.findings, latest.began, strict=True)
        ),
        passing=latest.proven,
        unreadable=latest.unread,
        inventory=latest.inventory,
        leaving=latest.leaving,
        received={path: max(0.0, at - received) for path, received in latest.received.items()},
    )


def limit_topologies(report: Report, topologies: Mapping[str, Collection[str]]) -> Report:
    """Return a report with findings that vote only in topologies of their check. topologies: by check; one
    that is not in it votes as the agent reports.

    The fault classes of a check are the same for all nodes, so that one report must not add any.
    """

    def limited(finding: ReportedFinding) -> ReportedFinding:
        allowed = topologies.get(finding.check, finding.topologies)
        names = tuple(name for name in finding.topologies if name in allowed)
        return finding if names == finding.topologies else replace(finding, topologies=names)

    findings = tuple(map(limited, report.findings))
    injections = tuple(replace(fault, finding=limited(fault.finding)) for fault in report.injections)
    if findings == report.findings and injections == report.injections:
        return report
    return replace(report, findings=findings, injections=injections)


def move_onsets(report: LatestReport, seconds: float) -> LatestReport:
    """Return a report with onsets that are some seconds later by the receiver's wall clock."""
    return replace(
        report,
        began=tuple(max(0.0, began + seconds) for began in report.began),
        received={path: max(0.0, at + seconds) for path, at in report.received.items()},
        injections=tuple(
            replace(fault, began=max(0.0, fault.began + seconds), until=fault.until + seconds)
            for fault in report.injections
        ),
    )


def _intern_inventory(inventory: Inventory) -> Inventory:
    """Return an equal inventory that stores targets, models and versions once for all nodes of one model."""
    return replace(
        inventory,
        driver=intern(inventory.driver),
        kernel=intern(inventory.kernel),
        platform=intern(inventory.platform),
        components={
            intern(target): ReportedComponent(
                id=component.id,
                model=intern(component.model),
                serial=component.serial,
                vbios=intern(component.vbios),
                firmware=intern(component.firmware),
                index=component.index,
            )
            for target, component in inventory.components.items()
        },
    )


def proves(report: LatestReport, cause: MarkCause) -> bool:
    """Return whether the check of a cause reports every target of the cause as passing."""
    if report.late or reports_fault(report, cause):
        return False
    targets = set(cause.targets or (cause.target,))
    for group in report.proven:
        if cause.check in group.checks:
            targets.difference_update(group.targets)
    return not targets


def reports_fault(report: LatestReport, cause: MarkCause) -> bool:
    """Return whether the check of a cause still finds a fault on one of its targets. For the cause of an
    injected fault, one that is still injected counts, too; it keeps no mark of a real fault.
    """
    targets = {cause.target, *cause.targets}
    return any(
        fault.finding.check == cause.check
        and (cause.injected or not fault.injected)
        and (fault.finding.target in targets or not targets.isdisjoint(fault.finding.targets))
        for fault in report.faults()
    )


class KnownChecks:
    """Names of the checks that exist: those of the catalogue, and those that any agent reports. catalogue:
    the former.
    """

    def __init__(self, catalogue: Iterable[str]) -> None:
        self.catalogue = frozenset(catalogue)
        self._groups: Counter[tuple[str, ...]] = Counter()
        self._reported: frozenset[str] | None = frozenset()

    def __contains__(self, check: object) -> bool:
        if check in self.catalogue:
            return True
        if self._reported is None:
            self._reported = frozenset(name for group in self._groups for name in group)
        return check in self._reported

    def add(self, groups: Iterable[tuple[str, ...]]) -> None:
        """Add the checks that a node reports."""
        for group in groups:
            if group not in self._groups:
                self._reported = None
            self._groups[group] += 1

    def remove(self, groups: Iterable[tuple[str, ...]]) -> None:
        """Remove the checks that a node reported."""
        for group in groups:
            self._groups[group] -= 1
            if self._groups[group] <= 0:
                del self._groups[group]
                self._reported = None
