"""Replay of a fleet: the real planner on recorded steps in virtual time; its plans are applied at once.

Pure: the same steps under the same policy give the same marks.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from msgspec.structs import replace

from nodeguard.backtest.domain_tracker import DomainTracker
from nodeguard.backtest.drain_tracker import DrainTracker
from nodeguard.backtest.mark_tracker import MarkTracker
from nodeguard.executors.advice.advised_marks import advised_marks
from nodeguard.fleet.plan_loop import PlanLoop
from nodeguard.fleet.planner import Planner
from nodeguard.fleet.state.history_events import (
    AgentLivenessChanged,
    HistoryEvent,
    NodeObserved,
    NodeRemoved,
    ReportReceived,
)
from nodeguard.fleet.state.liveness import MAX_START_WAIT, may_act
from nodeguard.model.decision import NodeDecision
from nodeguard.model.drain import DrainMode
from nodeguard.model.finding import Health
from nodeguard.model.instant import Instant
from nodeguard.model.inventory import InventoryNode
from nodeguard.model.mark import NodeMarks
from nodeguard.model.policy import Policy, Silence
from nodeguard.model.target import target_kind
from nodeguard.wire.report import Report

# Seconds from a change to the plan for it; from a late report to the heartbeat that confirms it; and between
# two times at which old data is removed.
_PLAN_DELAY = 1.0
_HEARTBEAT_SECONDS = 10.0
_EXPIRY_SECONDS = 3600.0

# Maximum number of consecutive plans, each applied, until a plan releases no mark.
_MAX_PLANS = 8

# Last heartbeat of a stale node, for every value of the policy's limit.
_LONG_AGO = -1e12

_UNHEALTHY = frozenset({Health.SUSPECT, Health.FATAL})


class FleetReplay:
    """A planner that replays the history. marks: the marks that it sets. domains: the degraded domains.
    drains: of its policy. checks: see Planner.
    """

    def __init__(self, policy: Policy, checks: Iterable[str]) -> None:
        self.marks = MarkTracker()
        self.domains = DomainTracker()
        self.drains = DrainTracker()
        # The replay does not need incidents.
        self._planner = Planner(replace(policy, silences=(Silence(),)), checks)
        # The last heartbeat of a node is at inf until a step reports it as stale.
        self._liveness = self._planner.state.liveness
        self._loop = PlanLoop(self._planner)
        self._requests: dict[str, tuple[object, ...]] = {}
        self._late: dict[str, float] = {}
        self._started: float | None = None
        self._due = inf
        self._last_expiry = -inf

    def apply_step(self, step: HistoryEvent) -> None:
        """Apply a step, after everything that was due before it."""
        if self._started is None:
            self._started = step.at
            self._due = step.at + MAX_START_WAIT
        self.advance_to(step.at)
        match step:
            case ReportReceived(at, uid, report):
                self._report(at, uid, report)
            case NodeObserved(at, node):
                self._update_node(at, node)
            case NodeRemoved(at, uid, _):
                self._requests.pop(uid, None)
                self._late.pop(uid, None)
                self._planner.remove_node(uid)
                self.marks.node_deleted(uid, at)
                self.domains.node_deleted(uid, at)
                self._schedule(at)
            case AgentLivenessChanged(at, uid, _, silent):
                self._liveness.record_report(uid, _LONG_AGO if silent else inf)
                if silent:
                    self._late.pop(uid, None)
                self._schedule(at)

    def advance_to(self, at: float) -> None:
        """Advance the time, with all plans that are due until then."""
        while self._due <= at:
            self._plan(self._due)

    def _schedule(self, at: float) -> None:
        self._due = min(self._due, at + _PLAN_DELAY)

    def _report(self, at: float, uid: str, report: Report) -> None:
        planner = self._planner
        if uid not in planner.state.nodes:
            planner.update_node(InventoryNode(uid, report.node, gpus=gpu_count(report)))
        planner.record_report(uid, report, Instant(at, at, ""))
        self._liveness.record_report(uid, inf)
        if planner.reports[uid].late:
            self._late[uid] = at + _HEARTBEAT_SECONDS
            self._due = min(self._due, at + _HEARTBEAT_SECONDS)
        else:
            self._late.pop(uid, None)
        requests = tuple(
            (
                finding.check,
                finding.target,
                finding.health,
                finding.component,
                finding.targets,
                finding.data_status,
                finding.family,
            )
            for finding in report.findings
            if finding.health in _UNHEALTHY
        )
        before = self._requests.get(uid, ())
        self._requests[uid] = requests
        if requests != before or self._has_marks(uid):
            self._schedule(at)

    def _update_node(self, at: float, node: InventoryNode) -> None:
        """Update a recorded node; the marks of this replay stay on it."""
        self._planner.update_node(node)
        if self._planner.tracker.decisions or self._has_marks(node.key):
            self._schedule(at)

    def _has_marks(self, uid: str) -> bool:
        """Return whether a node has marks or mark requests."""
        return uid in self._planner.tracker.decisions or self._planner.state.marks.latest(uid) != NodeMarks()

    def _plan(self, at: float) -> None:
        """Plan, and apply the plan, until a plan releases no mark."""
        planner, now = self._planner, Instant(at, at, "")
        self._due = inf
        for uid in [uid for uid, due in self._late.items() if due <= at]:
            del self._late[uid]
            planner.record_heartbeat(uid, now)
            self._liveness.record_report(uid, inf)  # the history says when the agent becomes stale
        if at - self._last_expiry >= _EXPIRY_SECONDS:
            self._last_expiry = at
            planner.tick(now)
        if may_act(planner.state.stale_agents(now), self._started or at, at):
            for _ in range(_MAX_PLANS):
                step = self._loop.step(now)
                plan, self._due = step.plan, step.next_change
                self.marks.plan_applied(planner, plan, at)
                self.domains.plan_applied(planner, plan, at)
                for decision in plan.decisions:
                    self._carry_out(decision)
                # Only the next plan may use the budget of released marks; without any, this plan is final.
                if not plan.released:
                    break
            self._due = min(self._due, self.drains.plan_applied(planner, at))
            if step.plan.decisions and planner.policy.drain.mode != DrainMode.DISABLED:
                self._schedule(at)  # work leaves once its quarantine is observed
        else:
            self._due = (self._started or at) + MAX_START_WAIT
        self._due = min((self._due, *self._late.values()))

    def _carry_out(self, decision: NodeDecision) -> None:
        state, uid = self._planner.state, decision.node
        before, writes, node = state.marks.observed(uid), state.policy.marks, state.nodes[uid]
        state.update_observed(
            uid, advised_marks(decision, before, writes, out_by_operator=node.out_by_operator)
        )


def gpu_count(report: Report) -> int:
    """Return the number of GPUs in a report's inventory."""
    return sum(1 for target in report.inventory.components if target_kind(target) == "gpu")
