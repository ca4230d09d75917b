"""What a node's agent says while a fault lasts: the real judge, asked when it may change its mind. Pure."""

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

# Seconds between two looks of an agent; since the node booted when a fault begins, and after a reboot.
ROUND = 10.0
_UPTIME, _NEW_BOOT = 1_000_000.0, 60.0

# Seconds between two looks beyond which the second needs one right before it: twice the shortest window.
_PAUSE = 1200.0

_KINDS: Mapping[Subsystem, tuple[str, ...]] = {"gpu": (NODE, "gpu", "nvlink"), "port": (NODE, "port")}
_INVENTORY = Inventory(driver="580.95.05", kernel="6.8.0-52-generic", platform="")


class TimedReport(Struct, frozen=True):
    """A report of one half of a node, so many seconds after a fault began."""

    after: float
    report: Report


class SimulatedAgent:
    """What all agents of a simulated fleet have in common: a catalogue, and what its judge said before."""

    def __init__(self, catalogue: Catalogue, signals: Mapping[str, Signal], name: str = "built in") -> None:
        """name: of the catalogue, as reports tell it."""
        # No node is of a platform that anybody knows: its peers and its own past tell what it should be.
        self._catalogue = replace(catalogue, platforms=())
        self._rules, self._wanted = compile_rules(catalogue, signals), plan_derivation(catalogue, signals)
        views = {check.id: check.topologies for check in catalogue.checks if check.topologies}
        self._facts = NodeFacts("a node", "1.0", name, views, _INVENTORY)
        self._delays = {half: _Delays(self._rules, half) for half in _KINDS}
        self._known: dict[tuple[str, int, float], tuple[TimedReport, ...]] = {}
        self._well: dict[Subsystem, Report] = {}

    @property
    def checks(self) -> tuple[str, ...]:
        """Names of all checks."""
        return tuple(check.id for check in self._catalogue.checks)

    def healthy_report(self, subsystem: Subsystem) -> Report:
        """What is said of one half while nothing is wrong."""
        if subsystem not in self._well:
            [*_, (_, last)] = self._said(subsystem, [], [-2 * ROUND, -ROUND])
            self._well[subsystem] = last
        return self._well[subsystem]

    def fault_reports(self, shape: FaultKind, slot: int, lasts: float) -> tuple[TimedReport, ...]:
        """What is said of a single fault of a slot that lasts for so many seconds."""
        if shape.subsystem is None:
            return ()
        name = shape.name, slot, lasts
        if name not in self._known:
            self._known[name] = self.reports(shape.subsystem, shape.changes(slot, lasts))
        return self._known[name]

    def reports(self, half: Subsystem, changes: Sequence[MachineChange]) -> tuple[TimedReport, ...]:
        """What is said of several changes, which are in the order of time: a report each time that the last
        one would no longer do.
        """
        moments = _moments(changes, self._delays[half])
        said = [(0.0, self.healthy_report(half)), *self._said(half, changes, moments)]
        return tuple(
            TimedReport(at, new) for (_, old), (at, new) in pairwise(said) if new.digest != old.digest
        )

    def _said(
        self, half: Subsystem, changes: Sequence[MachineChange], moments: Iterable[float]
    ) -> Iterator[tuple[float, Report]]:
        """What the looks at some moments lead to, where it is new. Changes are seen by the next look."""
        machine, derived, judged = SimulatedMachine(half), DeriveState(), JudgeState()
        left, began = list(reversed(changes)), -_UPTIME
        gist: tuple[object, ...] = ()
        for at in moments:
            while left and left[-1].after <= at:
                one = left.pop()
                began = at - _NEW_BOOT if one.reboot else began
                machine.apply(one, at - began)
            now = Instant(1_700_000_000.0 + at, at - began, f"boot {machine.boots}")
            derived, new = derive(
                self._catalogue, self._wanted, derived, machine.read(now.mono), now, PlatformHints()
            )
            judged, verdict = judge(self._rules, judged, new.readings, now, JudgeSettings())
            gist, before = _gist(verdict), gist
            if gist != before:
                yield at, build_report(verdict, now, self._facts)


def _moments(
    changes: Iterable[MachineChange], delays: Callable[[MachineChange], Iterable[float]]
) -> list[float]:
    """When to look: at every change, and whenever a window or patience that began with it ends; and one round
    before a look that follows on a long pause, or sees a change, so that no gap is wider there than an
    agent's own.
    """
    seen: set[float] = set()
    ends: set[float] = set()
    for one in changes:
        at = ceil(one.after / ROUND) * ROUND
        seen.add(at)
        ends.update(at + ceil(delay / ROUND) * ROUND for delay in delays(one))
    looks = sorted({-2 * ROUND, -ROUND} | seen | ends)
    paused = (at for before, at in pairwise(looks) if at in seen or at - before > _PAUSE)
    return sorted({*looks, *(at - ROUND for at in paused)})


class _Delays:
    """Seconds after a change at which a check of some kinds of slot may say something else."""

    def __init__(self, of: Rules, half: Subsystem) -> None:
        checks = [rule.check for each in _KINDS[half] for rule in of.by_kind[each]]
        self._all = {*(wait for check in checks for wait in _waits(check.when)), UNCORROBORATED_LIMIT}
        self._of_counter: dict[str, set[float]] = defaultdict(set)
        for check in checks:
            for leaf in check.leaves():
                if isinstance(leaf, Increase):
                    self._of_counter[leaf.signal].update(_waits(check.when))

    def __call__(self, one: MachineChange) -> Iterable[float]:
        if one.signals or one.log_events or one.reboot:
            return (wait for wait in self._all if wait <= UNCORROBORATED_LIMIT)
        return {wait for name in one.increments for wait in self._of_counter[name]}


def _waits(condition: Condition) -> Iterator[float]:
    match condition:
        case Sustained():
            yield condition.seconds
            yield from _waits(condition.condition)
        case Increase() | EventOccurred():
            if condition.over:
                yield condition.over
        case _:
            for part in getattr(condition, "of", ()):
                yield from _waits(part)


def _gist(one: Verdict) -> tuple[object, ...]:
    """What of a verdict makes another report of it; the report's digest says so for sure."""
    found = ((each.check, each.target, each.health, each.data_status, each.targets) for each in one.findings)
    return one.data_status, len(one.read_failures), *found


def merge_reports(halves: Sequence[Report]) -> Report:
    """One report of the parts of a node; the last one knows by which catalogue it is judged."""
    first = max(halves, key=lambda one: one.health.rank)
    findings = sorted((one for half in halves for one in half.findings), key=lambda one: -one.health.rank)
    return replace(
        first,
        catalogue=halves[-1].catalogue,
        findings=tuple(findings),
        unread=tuple(one for half in halves for one in half.unreadable),
        proven=tuple(one for half in halves for one in half.passing),
        knowledge=max((one.data_status for one in halves), key=lambda one: one.rank),
        digest="+".join(one.digest for one in halves),
    )


def age_report(one: Report, seconds: float) -> Report:
    """A report as it is sent so many seconds later, of a node where nothing has changed since."""
    if not seconds or not one.findings:
        return one
    return replace(one, findings=tuple(replace(each, age=each.age + seconds) for each in one.findings))
