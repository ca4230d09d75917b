"""Reports of a simulated agent: the real derivation and judge, run when the result may change. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import ceil

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.derive.derive import PlatformHints, derive
from nodeguard.derive.state import DeriveState, plan_derivation
from nodeguard.judge.events import UNCORROBORATED_LIMIT
from nodeguard.judge.judge import JudgeSettings, judge
from nodeguard.judge.rules import Rules, compile_rules
from nodeguard.judge.state import JudgeState
from nodeguard.model.catalogue import Catalogue
from nodeguard.model.check import Condition, EventOccurred, Increase, Sustained
from nodeguard.model.finding import Verdict
from nodeguard.model.instant import Instant
from nodeguard.model.signal import Signal
from nodeguard.model.target import NODE
from nodeguard.simulate.fault_kinds import FaultKind
from nodeguard.simulate.simulated_machine import MachineChange, SimulatedMachine, Subsystem
from nodeguard.wire.report import Inventory, Report
from nodeguard.wire.report_builder import NodeFacts, build_report

# Seconds between two evaluations of an agent; since boot when a fault begins, and after a reboot.
EVALUATION_SECONDS = 10.0
_UPTIME, _UPTIME_AFTER_REBOOT = 1_000_000.0, 60.0

# Seconds without an evaluation after which one more is needed before the next: twice the shortest window.
_MAX_GAP = 1200.0

_TARGET_KINDS: Mapping[Subsystem, tuple[str, ...]] = {"gpu": (NODE, "gpu", "nvlink"), "port": (NODE, "port")}
_INVENTORY = Inventory(driver="580.95.05", kernel="6.8.0-52-generic", platform="")


class TimedReport(Struct, frozen=True):
    """A report about one subsystem of a node. after: seconds since the fault began."""

    after: float
    report: Report


class SimulatedAgent:
    """What all agents of a simulated fleet share: the catalogue, and reports that were computed before.

    checks: ids of all checks.
    """

    def __init__(self, catalogue: Catalogue, signals: Mapping[str, Signal]) -> None:
        # Without platforms the expectation comes from a node's peers and its own past.
        self._catalogue = replace(catalogue, platforms=())
        self._rules, self._wanted = (
            compile_rules(catalogue, signals),
            plan_derivation(self._catalogue, signals),
        )
        topologies = {check.id: check.topologies for check in catalogue.checks if check.topologies}
        self._facts = NodeFacts("a node", "1.0", "built in", topologies, _INVENTORY, catalogue.fact_checks)
        self._delays = {subsystem: _Delays(self._rules, subsystem) for subsystem in _TARGET_KINDS}
        self._fault_reports: dict[tuple[str, int, float], tuple[TimedReport, ...]] = {}
        self._healthy_reports: dict[Subsystem, Report] = {}

    @property
    def checks(self) -> tuple[str, ...]:
        """Ids of all checks."""
        return tuple(check.id for check in self._catalogue.checks)

    def healthy_report(self, subsystem: Subsystem) -> Report:
        """Return the report about one subsystem without faults."""
        if subsystem not in self._healthy_reports:
            times = [-2 * EVALUATION_SECONDS, -EVALUATION_SECONDS]
            [*_, (_, last)] = self._evaluate(subsystem, [], times)
            self._healthy_reports[subsystem] = last
        return self._healthy_reports[subsystem]

    def fault_reports(self, kind: FaultKind, target_index: int, duration: float) -> tuple[TimedReport, ...]:
        """Return the reports about a single fault of a target. Faults that end before the same evaluation
        have the same reports.
        """
        if kind.subsystem is None:
            return ()
        end = _next_evaluation(duration)
        key = kind.name, target_index, end
        if key not in self._fault_reports:
            self._fault_reports[key] = self.reports(kind.subsystem, kind.changes(target_index, end))
        return self._fault_reports[key]

    def reports(self, subsystem: Subsystem, changes: Sequence[MachineChange]) -> tuple[TimedReport, ...]:
        """Return the reports about changes, which are in the order of time: one for each new result."""
        times = _evaluation_times(changes, self._delays[subsystem])
        reports = [(0.0, self.healthy_report(subsystem)), *self._evaluate(subsystem, changes, times)]
        return tuple(
            TimedReport(at, new) for (_, old), (at, new) in pairwise(reports) if new.digest != old.digest
        )

    def _evaluate(
        self, subsystem: Subsystem, changes: Sequence[MachineChange], times: Iterable[float]
    ) -> Iterator[tuple[float, Report]]:
        """Yield the reports of evaluations at some times, without repeats. Each sees all earlier changes."""
        machine, derive_state, judge_state = SimulatedMachine(subsystem), DeriveState(), JudgeState()
        pending, booted_at = list(reversed(changes)), -_UPTIME
        summary: tuple[object, ...] = ()
        for at in times:
            while pending and pending[-1].after <= at:
                change = pending.pop()
                booted_at = at - _UPTIME_AFTER_REBOOT if change.reboot else booted_at
                machine.apply(change, at - booted_at)
            now = Instant(1_700_000_000.0 + at, at - booted_at, f"boot {machine.boots}")
            readings = machine.read(now.mono)
            remembered = judge_state.logged_events(now.boot_id)
            derive_state, derived = derive(
                self._wanted, derive_state, readings, now, PlatformHints(), remembered=remembered
            )
            judge_state, verdict = judge(self._rules, judge_state, derived.readings, now, JudgeSettings())
            summary, before = _summary(verdict), summary
            if summary != before:
                yield at, build_report(verdict, now, self._facts)


def _evaluation_times(
    changes: Iterable[MachineChange], delays: Callable[[MachineChange], Iterable[float]]
) -> list[float]:
    """Return the times of evaluations: at every change, and when a window or delay that it began ends.

    One more evaluation comes before each that follows a long gap or sees a change, so that no gap there is
    longer than an agent's own.
    """
    changed: set[float] = set()
    ends: set[float] = set()
    for change in changes:
        at = _next_evaluation(change.after)
        changed.add(at)
        ends.update(at + _next_evaluation(delay) for delay in delays(change))
    times = sorted({-2 * EVALUATION_SECONDS, -EVALUATION_SECONDS} | changed | ends)
    after_gap = (at for before, at in pairwise(times) if at in changed or at - before > _MAX_GAP)
    return sorted({*times, *(at - EVALUATION_SECONDS for at in after_gap)})


def _next_evaluation(seconds: float) -> float:
    """Return the time of the first evaluation after some seconds, in seconds since the fault began."""
    return ceil(seconds / EVALUATION_SECONDS) * EVALUATION_SECONDS


class _Delays:
    """Seconds after a change at which a check of one subsystem may have another result."""

    def __init__(self, all_rules: Rules, subsystem: Subsystem) -> None:
        checks = [rule.check for kind in _TARGET_KINDS[subsystem] for rule in all_rules.by_kind[kind]]
        self._all = {*(delay for check in checks for delay in _delays(check.when)), UNCORROBORATED_LIMIT}
        self._of_counter: dict[str, set[float]] = defaultdict(set)
        for check in checks:
            for leaf in check.leaves():
                if isinstance(leaf, Increase):
                    self._of_counter[leaf.signal].update(_delays(check.when))

    def __call__(self, change: MachineChange) -> Iterable[float]:
        if change.signals or change.log_events or change.reboot:
            return (delay for delay in self._all if delay <= UNCORROBORATED_LIMIT)
        return {delay for name in change.increments for delay in self._of_counter[name]}


def _delays(condition: Condition) -> Iterator[float]:
    match condition:
        case Sustained():
            yield condition.seconds
            yield from _delays(condition.condition)
        case Increase() | EventOccurred():
            if condition.over:
                yield condition.over
        case _:
            for part in getattr(condition, "of", ()):
                yield from _delays(part)


def _summary(verdict: Verdict) -> tuple[object, ...]:
    """Return the parts of a verdict that change a report; only the report's digest is exact."""
    findings = (
        (finding.check, finding.target, finding.health, finding.data_status, finding.targets)
        for finding in verdict.findings
    )
    return verdict.data_status, len(verdict.read_failures), *findings


def merge_reports(reports: Sequence[Report]) -> Report:
    """Return one report of a node's parts."""
    worst = max(reports, key=lambda part: part.health.rank)
    findings = sorted(
        (finding for part in reports for finding in part.findings), key=lambda finding: -finding.health.rank
    )
    return replace(
        worst,
        findings=tuple(findings),
        unreadable=tuple(failure for part in reports for failure in part.unreadable),
        passing=tuple(passing for part in reports for passing in part.passing),
        data_status=max((part.data_status for part in reports), key=lambda status: status.rank),
        digest="+".join(part.digest for part in reports),
    )


def age_report(original: Report, seconds: float) -> Report:
    """Return a report as it is sent some seconds later, if nothing has changed on its node."""
    if not seconds or not (original.findings or original.received):
        return original
    findings = (
        replace(
            finding,
            age=finding.age + seconds,
            evidence=tuple(replace(item, age=item.age + seconds) for item in finding.evidence),
        )
        for finding in original.findings
    )
    received = {path: age + seconds for path, age in original.received.items()}
    return replace(original, findings=tuple(findings), received=received)
