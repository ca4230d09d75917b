"""The history of a fleet, and the backtest of a policy on it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from nodeguard.backtest.backtest import BacktestResult, run_backtest
from nodeguard.backtest.mark_results import MarkResult
from nodeguard.backtest.policy_result import PolicyResult
from nodeguard.fleet.state.history_events import (
    AgentLivenessChanged,
    HistoryEvent,
    NodeObserved,
    NodeRemoved,
    ReportReceived,
)
from nodeguard.model.diagnosis import SuppressionPolicy
from nodeguard.model.finding import DataStatus, Health
from nodeguard.model.incident import IncidentState
from nodeguard.model.node import Node
from nodeguard.model.policy import GracePeriods, Mode, Policy, SoakPeriod
from nodeguard.wire.digest import digest
from nodeguard.wire.report import VERSION, Report, ReportedFinding
from tests.fleet.cluster_planner import inventory
from tests.fleet.scene import CHECKS, WIDE, finding, in_order
from tests.policies import diagnosis_policy

START = 1_700_000_000.0
FREE = Policy(
    mode=Mode.ENFORCE,
    budget=WIDE,
    grace=GracePeriods(5.0, 60.0, 5.0),
    soak=SoakPeriod(600.0, 28_800.0, 86_400.0),
    diagnosis=diagnosis_policy(suppression=SuppressionPolicy(min_nodes=10_000)),
)


class FleetHistory:
    """The history of a fleet with healthy nodes at second 0; times are seconds from there."""

    def __init__(self, size: int = 10) -> None:
        self.steps: list[HistoryEvent] = []
        self._sequence = 0
        for number in range(size):
            self.see(0.0, number)
            self.report(0.0, number)

    def see(self, at: float, number: int, **more: Any) -> None:
        labels = {"rack": f"r{number // 8}"}
        node = Node(f"node-{number}", f"uid-{number}", labels=labels, gpus=8)
        self.steps.append(NodeObserved(START + at, inventory(replace(node, **more))))

    def report(self, at: float, number: int, *findings: ReportedFinding, **more: Any) -> None:
        self._sequence += 1
        values: dict[str, Any] = {
            "version": VERSION, "node": f"node-{number}", "boot_id": "b1", "sequence": self._sequence,
            "health": max((finding.health for finding in findings), key=lambda finding: finding.rank, default=Health.OK),
            "data_status": DataStatus.FRESH, "passing": () if findings else (in_order(),), "findings": findings,
        }  # fmt: skip
        made = Report(**{**values, **more})
        self.steps.append(ReportReceived(START + at, f"uid-{number}", replace(made, digest=digest(made))))

    def fault(self, at: float, number: int, check: str = "gpu-lost", **more: Any) -> None:
        self.report(at, number, finding(check, **{"age": 0.0, **more}))

    def change_last(self, **changes: Any) -> None:
        """Change fields of the report that was added last."""
        step = self.steps[-1]
        assert isinstance(step, ReportReceived)
        self.steps[-1] = replace(step, report=replace(step.report, **changes))

    def quiet(self, at: float, number: int, *, silent: bool) -> None:
        self.steps.append(AgentLivenessChanged(START + at, f"uid-{number}", f"node-{number}", silent))

    def gone(self, at: float, number: int) -> None:
        self.steps.append(NodeRemoved(START + at, f"uid-{number}", f"node-{number}"))

    def run(self, *policies: Policy, since: float = 0.0, until: float = 0.0) -> BacktestResult:
        steps = sorted(self.steps, key=lambda step: step.at)
        return run_backtest(steps, policies or (FREE,), CHECKS, START + since, START + until)

    def result(self, policy: Policy = FREE, **times: float) -> PolicyResult:
        return self.run(policy, **times).results[0]


def shown(
    entries: Iterable[MarkResult], state: IncidentState = IncidentState.MARKED
) -> list[tuple[str, float, float | None, str]]:
    """Return the marks in a state: node, begin and end in seconds of the scene, and end reason."""
    return [
        (
            mark.node,
            round(mark.start - START),
            None if mark.end is None else round(mark.end - START),
            mark.end_reason.value,
        )
        for mark in entries
        if mark.state == state
    ]
