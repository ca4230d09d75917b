"""Reports of simulated nodes by the checks that fire on them, with the findings of the product's judge."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import product

from msgspec.structs import replace

from bench.evaluation.false_checks import false_check_agent
from bench.evaluation.observed import NodeReport
from bench.evaluation.symptoms import FALSE, Firing
from bench.evaluation.world import VersionChange
from nodeguard.model.catalogue import Catalogue
from nodeguard.model.signal import Signal
from nodeguard.model.target import NODE
from nodeguard.simulate.agent_reports import SimulatedAgent
from nodeguard.simulate.fault_kinds import FAULT_KINDS, FaultKind
from nodeguard.simulate.faults import SimulatedAgents
from nodeguard.simulate.simulated_machine import PORTS, SUBSYSTEMS, MachineChange
from nodeguard.wire.report import Report, ReportedFinding, ReportedPassing

# A fault is long enough for each of its checks to fire.
_LONG = 7200.0

# Messages of an agent that has run for long, and seconds between two.
_ESTABLISHED, _MESSAGE_SECONDS = 10_000, 10.0


def _flaps(_: int, __: float) -> tuple[MachineChange, ...]:
    return tuple(
        MachineChange(600.0 * number, PORTS[0], increments={"port.link_downed": 1}) for number in range(3)
    )


def _mismatch(_: int, duration: float) -> tuple[MachineChange, ...]:
    error = {"nvml.error": "LIB_RM_VERSION_MISMATCH"}
    return MachineChange(0.0, NODE, error), MachineChange(duration, reboot=True)


# The fault that shows a check, where the check is not that of a kind of the product's simulator.
_SHOWN_BY: Mapping[str, FaultKind] = {
    "port-flap": FaultKind("flaps", "port", _flaps),
    "driver-library-mismatch": FaultKind("library-mismatch", "gpu", _mismatch),
}


class ReportBook:
    """Makes reports. A set of checks is evaluated once; only ages differ between its reports."""

    def __init__(self, catalogue: Catalogue, signals: Mapping[str, Signal]) -> None:
        self._catalogue, self._signals = catalogue, signals
        self.agents = SimulatedAgents(SimulatedAgent(catalogue, signals))
        self._findings: dict[str, tuple[ReportedFinding, ...]] = {}
        self._reports: dict[frozenset[str], Report] = {}
        # An agent that has just started cannot prove yet that a check passes that observes for a while.
        passing = {group.targets: dict.fromkeys(group.checks) for group in self.agents.healthy_report.passing}
        for report in self._fault_reports():
            for finding in report.findings:
                self._findings[finding.check] = (replace(finding, age=0.0),)
            for targets, group in product(passing, report.passing):
                if set(group.targets) <= set(targets):
                    passing[targets].update(dict.fromkeys(group.checks))
        self._passing = tuple(ReportedPassing(tuple(checks), targets) for targets, checks in passing.items())

    def _fault_reports(self) -> Iterator[Report]:
        """Yield the reports about a fault of each kind, and those after it."""
        for kind in (*FAULT_KINDS.values(), *_SHOWN_BY.values()):
            if kind.subsystem is not None:
                yield from (timed.report for timed in self.agents.agent.fault_reports(kind, 0, _LONG))

    def report(
        self, seen: NodeReport, changes: Mapping[str, VersionChange], started_at: float | None
    ) -> Report:
        """Return a report. changes: the versions that the node received, by topology. started_at: of its
        agent, None for long ago.
        """
        versions = {topology: change.version.partition("/")[2] for topology, change in changes.items()}
        names = [_finding_name(firing) for firing in seen.firing]
        template = self._template(frozenset(names))
        since = {name: firing.start for name, firing in zip(names, seen.firing, strict=True)}
        findings = tuple(
            replace(finding, age=max(0.0, seen.at - start))
            for name, start in since.items()
            for finding in self._found(name)
        )
        driver = versions.get("driver")
        inventory = replace(template.inventory, driver=driver) if driver else template.inventory
        return replace(
            template,
            findings=tuple(sorted(findings, key=lambda finding: -finding.health.rank)),
            inventory=inventory,
            catalogue=versions.get("catalogue", template.catalogue),
            received={change.version: seen.at - change.at for change in changes.values()},
            sequence=_ESTABLISHED
            if started_at is None
            else 1 + int((seen.at - started_at) / _MESSAGE_SECONDS),
        )

    def _template(self, names: frozenset[str]) -> Report:
        """Return a report with the health and the passing checks of a node on which some checks fire."""
        report = self._reports.get(names)
        if report is None:
            healthy = self.agents.healthy_report
            firing = {name.removeprefix(FALSE) for name in names}
            health = max(
                (finding.health for name in names for finding in self._found(name)),
                key=lambda health: health.rank,
                default=healthy.health,
            )
            digest = "+".join(sorted(names)) or healthy.digest
            passing = _without(self._passing, firing)
            report = self._reports[names] = replace(healthy, health=health, passing=passing, digest=digest)
        return report

    def _found(self, name: str) -> tuple[ReportedFinding, ...]:
        if name not in self._findings:
            check = name.removeprefix(FALSE)
            agent = false_check_agent(self._catalogue, self._signals, check)
            self._findings[name] = tuple(
                replace(finding, age=0.0)
                for subsystem in SUBSYSTEMS
                for finding in agent.healthy_report(subsystem).findings
                if finding.check == check
            )[:1]
        return self._findings[name]


def _finding_name(firing: Firing) -> str:
    """Return a name of the findings of a check: a false alarm has others than a fault."""
    return f"{FALSE}{firing.check}" if firing.symptom.startswith(FALSE) else firing.check


def _without(passing: Iterable[ReportedPassing], checks: set[str]) -> tuple[ReportedPassing, ...]:
    """Return passing checks without some."""
    if not checks:
        return tuple(passing)
    return tuple(
        ReportedPassing(tuple(check for check in group.checks if check not in checks), group.targets)
        for group in passing
    )
