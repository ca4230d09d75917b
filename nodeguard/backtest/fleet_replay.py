"""The fleet's own planner in virtual time: told what was told, when it was, its plans carried out at once.

Pure: the same steps under the same policy come to the same marks.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from math import inf

from msgspec.structs import replace

from nodeguard.backtest.mark_tracker import MarkTracker
from nodeguard.fleet.planner import Planner
from nodeguard.fleet.policy_rules import check_limit
from nodeguard.fleet.state.annotation_codec import decode_record
from nodeguard.fleet.state.history_events import (
    AgentLivenessChanged,
    HistoryEvent,
    NodeObserved,
    NodeRemoved,
    ReportReceived,
)
from nodeguard.fleet.state.liveness import MAX_START_WAIT, may_act
from nodeguard.fleet.state.node_marks import NodeMarks, apply_desired
from nodeguard.model.finding import Health
from nodeguard.model.incident import IncidentState
from nodeguard.model.instant import Instant
from nodeguard.model.mark import STATE_ANNOTATION, MarkRecord
from nodeguard.model.node import Node
from nodeguard.model.policy import Policy, Silence
from nodeguard.model.target import target_kind
from nodeguard.wire.report import Report

# Seconds for which news is gathered before it is planned for; after which a report that came late is
# confirmed by the next heartbeat; between two looks at what has to be forgotten; and added to a moment at
# which something is due, as sums of such numbers are not exact.
_GATHER = 1.0
_BEAT = 10.0
_LOOK = 3600.0
_SOON = 0.001

# Plans in a row, each carried out, until there is nothing left to do.
_ROUNDS = 8

# When a node was heard last that is silent, whatever the policy calls so.
_LONG_AGO = -1e12

_ASKING = frozenset({Health.SUSPECT, Health.FATAL})


class FleetReplay:
    """A fleet that is told step by step. marks: what comes of it. checks: see Planner."""

    def __init__(self, policy: Policy, checks: Iterable[str]) -> None:
        self.marks = MarkTracker()
        # Nobody is there to be told of incidents.
        self._planner = Planner(replace(policy, silences=(Silence(),)), checks)
        self._asks: dict[str, tuple[object, ...]] = {}
        self._late: dict[str, float] = {}
        self._began: float | None = None
        self._due = inf
        self._looked = -inf
        self._is_silence_new = False

    def apply_step(self, step: HistoryEvent) -> None:
        """A step, after all that was due before it."""
        if self._began is None:
            self._began = step.at
            self._due = step.at + MAX_START_WAIT
        self.advance_to(step.at)
        match step:
            case ReportReceived(at, uid, report):
                self._report(at, uid, report)
            case NodeObserved(at, node):
                self._see(at, node)
            case NodeRemoved(at, uid, _):
                self._asks.pop(uid, None)
                self._late.pop(uid, None)
                self._planner.remove_node(uid)
                self.marks.node_deleted(uid, at)
                self._wake(at)
            case AgentLivenessChanged(at, uid, _, silent):
                self._hear(uid, _LONG_AGO if silent else inf)
                self._is_silence_new = True
                self._wake(at)

    def advance_to(self, at: float) -> None:
        """Time passes up to a moment."""
        while self._due <= at:
            self._plan(self._due)

    def _wake(self, at: float) -> None:
        self._due = min(self._due, at + _GATHER)

    def _report(self, at: float, uid: str, report: Report) -> None:
        planner = self._planner
        if uid not in planner.state.nodes:
            planner.update_node(Node(report.node, uid, gpus=gpu_count(report)))
        planner.record_report(uid, report, Instant(at, at, ""))
        self._hear(uid, inf)
        self._is_silence_new = self._is_silence_new or uid in planner.stale_agents.stale
        if planner.reports[uid].late:
            self._late[uid] = at + _BEAT
            self._due = min(self._due, at + _BEAT)
        else:
            self._late.pop(uid, None)
        asks = tuple(
            (one.check, one.target, one.health, one.component, one.targets, one.data_status, one.family)
            for one in report.findings
            if one.health in _ASKING
        )
        before = self._asks.get(uid, ())
        self._asks[uid] = asks
        if asks != before or self._concerns(uid):
            self._wake(at)

    def _hear(self, uid: str, at: float) -> None:
        """A node is heard, inf: until it is said that it is not any more."""
        self._planner.state.liveness.record_report(uid, at)

    def _see(self, at: float, node: Node) -> None:
        """A Node as it is told, with what is written on it here."""
        before = self._planner.state.nodes.get(node.uid)
        if before is not None:
            state = before.annotations.get(STATE_ANNOTATION, "")
            ours = (decode_record(state) or MarkRecord()).cordoned
            node = replace(
                node,
                annotations={**node.annotations, **({STATE_ANNOTATION: state} if state else {})},
                taints=before.taints,
                condition=before.condition,
                unschedulable=node.unschedulable or ours,
            )
        self._planner.update_node(node)
        if self._planner.decisions or self._concerns(node.uid):
            self._wake(at)

    def _concerns(self, uid: str) -> bool:
        """Whether a node holds anything, or something is asked of it."""
        return uid in self._planner.decisions or self._planner.state.marks(uid) != NodeMarks()

    def _plan(self, at: float) -> None:
        """Plan and carry out, until nothing is left to do."""
        planner, now = self._planner, Instant(at, at, "")
        self._due = inf
        for uid in [uid for uid, due in self._late.items() if due <= at]:
            del self._late[uid]
            planner.record_heartbeat(uid, now)
        if self._is_silence_new or at - self._looked >= _LOOK:
            self._is_silence_new, self._looked = False, at
            planner.tick(now)
        if may_act(planner.stale_agents, self._began or at, at):
            for _ in range(_ROUNDS):
                plan = planner.plan(now)
                self.marks.plan_applied(planner, plan, at)
                planner.record_issued(plan)
                for desired in plan.nodes:
                    planner.update_node(apply_desired(planner.state.nodes[desired.uid], desired))
                # What is given back may be spent by the next plan alone; else this one did what there is.
                if not plan.released:
                    break
        else:
            self._due = (self._began or at) + MAX_START_WAIT
        self._due = min(self._due, min(self._later(at), default=inf))

    def _later(self, at: float) -> Iterator[float]:
        """Moments after this one at which time alone may change the plan."""
        planner = self._planner
        yield from self._late.values()
        # Of many that were marked once, few are marked now.
        proofs = (planner.releases.proofs.get(uid, {}) for uid in planner.state.marked_nodes())
        soaked = (proof.until for found in proofs for proof in found.values())
        yield from (until + _SOON for until in soaked if until > at)
        late: set[str] = set()
        for outcomes in planner.decisions.values():
            for one in outcomes:
                if one.state == IncidentState.PENDING:
                    yield one.until + _SOON
                elif one.refusal is not None and one.refusal.check:
                    late.add(one.refusal.check)
        if late:
            yield from self._allowed(at, late)
        due = planner.diagnosis.next_evaluation()
        if due is not None:
            yield max(due, at + _SOON)

    def _allowed(self, at: float, checks: Container[str]) -> Iterator[float]:
        """Moments after this one at which what some checks took out no longer counts as new."""
        policy = self._planner.policy
        for charged in self._planner.state.usage.values():
            new = [(one.check, one.at) for one in charged.charges] + [
                (one.check, one.at) for one in charged.past
            ]
            ends = (began + check_limit(policy, check).within for check, began in new if check in checks)
            yield from (end + _SOON for end in ends if end > at)


def gpu_count(report: Report) -> int:
    """How many GPUs a report's inventory tells of."""
    return sum(1 for slot in report.inventory.components if target_kind(slot) == "gpu")
