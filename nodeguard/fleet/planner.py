"""The planner: what is known of the fleet, and the plan that follows from it.

It does no input or output and has no clock: the same calls lead to the same plans. Nodes are told by uid.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from nodeguard.fleet.decide.admission import (
    AdmissionContext,
    Grant,
    MarkDecision,
    RequestKey,
    admit,
    is_marked_for,
)
from nodeguard.fleet.decide.domain_decision import DomainContext, DomainDecision
from nodeguard.fleet.decide.domain_marks import DomainMarks
from nodeguard.fleet.decide.mark_requests import MarkRequest, requested_marks
from nodeguard.fleet.decide.release import ReleasedMark
from nodeguard.fleet.decide.release_tracker import ReleaseTracker
from nodeguard.fleet.decide.restraints import fleet_restraint, mark_restraint
from nodeguard.fleet.decide.settled_nodes import SettledNodes
from nodeguard.fleet.diagnosis.component_faults import ComponentFaultTracker
from nodeguard.fleet.diagnosis.diagnosis import Diagnosis
from nodeguard.fleet.diagnosis.explanation import degraded_message
from nodeguard.fleet.diagnosis.vote_collector import VoteCollector
from nodeguard.fleet.incidents.condition import node_condition
from nodeguard.fleet.incidents.tracker import SHARED, IncidentTracker
from nodeguard.fleet.plan import Plan
from nodeguard.fleet.policy_rules import mode_of
from nodeguard.fleet.state.fleet_state import FleetState
from nodeguard.fleet.state.latest_report import KnownChecks, LatestReport, TupleInterner, latest_report
from nodeguard.fleet.state.liveness import StaleAgents
from nodeguard.fleet.state.node_marks import NodeMarks, desired_node, device_rules, is_as_desired, with_cordon
from nodeguard.model.incident import Incident, IncidentState
from nodeguard.model.instant import Instant
from nodeguard.model.mark import STATE_ANNOTATION, DesiredNode, DeviceRule
from nodeguard.model.node import PREFIX, Device, Node, NodeCondition
from nodeguard.model.policy import Mode, Policy
from nodeguard.wire.report import Report


class Planner:
    """What is known of the fleet.

    policy: what may be done. checks: names of all in the catalogue; others are known as agents tell of them.
    paused: why nothing new is marked, by people's word; empty where it may be. heard, outcomes, incidents: of
    each node that there is anything of. releases: what is released, and why the rest stays. parts: what fails
    again and again.
    """

    def __init__(
        self, policy: Policy, checks: Iterable[str], granted: IncidentState = IncidentState.MARKED
    ) -> None:
        """granted: the state of a mark that is granted: `Advised` where no cluster carries it."""
        self.granted = granted
        self.checks = KnownChecks(checks)
        self.state = FleetState(policy, self.checks)
        self.paused = ""
        self.reports: dict[str, LatestReport] = {}
        self.stale_agents = StaleAgents()
        self._shared = TupleInterner()
        self._wants: dict[str, tuple[MarkRequest, ...]] = {}
        # What a dry run grants: of the latest plan, and of the one before it, which the latest builds on.
        self._would: dict[RequestKey, Grant] = {}
        self._would_next: dict[RequestKey, Grant] = {}
        self._planned: dict[str, NodeMarks] = {}
        self._resting = SettledNodes(self.state, self.reports)
        self._witness = VoteCollector(policy.diagnosis, self.state, self.reports)
        self._domain_marks = DomainMarks(self._witness)
        self.releases = ReleaseTracker(self.state, self.reports, self._domain_marks, self.checks)
        self.component_faults = ComponentFaultTracker(self._domain_marks.parent_incident)
        self._incidents = IncidentTracker(self.state, self.reports, self.releases.proofs, granted)

    @property
    def vote_collector(self) -> VoteCollector:
        """What the diagnosis is told of, and by whom."""
        return self._witness

    @property
    def diagnosis(self) -> Diagnosis:
        """What the nodes' findings say of what they share."""
        return self._witness.diagnosis

    @property
    def incidents(self) -> dict[str, dict[str, Incident]]:
        """By uid of their Node, empty for those of domains and checks, and by name."""
        return self._incidents.incidents

    @property
    def pending(self) -> Mapping[str, Mapping[str, Incident]]:
        """Incidents whose mark is in its grace period, which nothing is recorded of yet, in the same way."""
        return self._incidents.pending

    @property
    def incidents_left_out(self) -> Mapping[str, frozenset[str]]:
        """Names of incidents for which there is no room now, by uid of their Node."""
        return self._incidents.left_out

    @property
    def incidents_left_out_total(self) -> int:
        """How many incidents found no room since the start."""
        return self._incidents.left_out_total

    @property
    def decisions(self) -> Mapping[str, tuple[MarkDecision, ...]]:
        """What became of each node's wants in the latest plan."""
        return self._incidents.decisions

    @property
    def domain_decisions(self) -> Mapping[str, DomainDecision]:
        """What becomes of the domains that are to blame."""
        return self._domain_marks.decisions

    @property
    def policy(self) -> Policy:
        """What may be done."""
        return self.state.policy

    @property
    def last_reports(self) -> Mapping[str, float]:
        """When each node was heard last, in seconds of the monotonic clock."""
        return self.state.liveness.last_reports

    def set_policy(self, policy: Policy) -> None:
        """Another policy, from the next plan on."""
        self.state.set_policy(policy)
        self._witness.set_rule(policy.diagnosis)
        self._incidents.reset()
        for uid in self.reports:
            self._ask(uid)

    def restore_incidents(self, incidents: Iterable[Incident]) -> None:
        """Incidents that were told of before this planner was: at the start, once."""
        self._incidents.restore(incidents)

    def update_node(self, node: Node) -> None:
        """A Node as it is now; it takes the place of another of its name."""
        old = self.state.uid(node.name)
        if old and old != node.uid:
            self.remove_node(old)
        self.state.update_node(node)
        self._ask(node.uid)

    def remove_node(self, uid: str) -> None:
        """A Node that is no more, and with it all that was said of it, but for its incidents."""
        self.state.remove_node(uid)
        self._witness.remove_node(uid)
        self._mute(uid)
        self.state.liveness.forget(uid)
        self._wants.pop(uid, None)
        self.releases.remove_node(uid)
        self._resting.discard(uid)
        self.component_faults.remove_node(uid)
        self._incidents.remove_node(uid)

    def update_devices(self, node: str, devices: Iterable[Device]) -> None:
        """The devices that are published of a node, by its name."""
        self.state.update_devices(node, devices)
        uid = self.state.uid(node)
        if uid:
            self._ask(uid)

    def record_report(self, uid: str, report: Report, now: Instant) -> None:
        """A node's report."""
        self.state.add_agent(uid)
        self._mute(uid)
        one = self.reports[uid] = latest_report(report, now, self._shared)
        self.checks.add(group.checks for group in one.proven)
        self.state.liveness.record_report(uid, now.mono)
        self._witness.record_report(uid, now)
        self.component_faults.record_report(uid, report.node, one, now)
        self._ask(uid)

    def record_heartbeat(self, uid: str, now: Instant) -> None:
        """A node whose report stands as it was."""
        self.state.liveness.record_report(uid, now.mono)
        known = self.reports.get(uid)
        if known is not None and known.late:
            self.reports[uid] = replace(known, late=False)
            self._witness.record_report(uid, now)
            self._ask(uid)

    def tick(self, now: Instant) -> None:
        """Time has passed: who is silent? To be called every second or so."""
        self._would = self._would_next
        self.stale_agents = self.stale_agents_at(now)
        self._witness.update_stale(self.stale_agents.stale, now)
        self._incidents.forget(now.wall)
        self.component_faults.tick(now)

    def stale_agents_at(self, now: Instant) -> StaleAgents:
        """Return which agents do not report at this moment: what the next `tick` finds."""
        silent, roster = self.policy.stale, self.state
        return roster.liveness.stale_agents(now.mono, silent.after, silent.freeze, roster.budgets.size)

    def plan(self, now: Instant) -> Plan:
        """What is to be done now: the same again, until it is `issued` or seen to be done."""
        freed: list[tuple[str, ReleasedMark]] = []
        before = {uid: self.state.marks(uid) for uid in self.state.marked_nodes()}
        self._domain_marks.restore(before, self.incidents.get(SHARED, {}).values(), now)
        # What rests may be touched by what is blamed or held now, and was not before.
        if self.diagnosis.evaluate(now.mono):
            self._domain_marks.invalidate()
            self._incidents.touch_all()
        silent, epoch = self.stale_agents.stale, self._domain_marks.epoch
        resting = {
            uid for uid in self.state.marked_nodes() if self._resting.is_settled(uid, silent, epoch, now.wall)
        }
        holdings = {
            uid: self.state.marks(uid) if uid in resting else self.releases.release(uid, silent, now, freed)
            for uid in self.state.marked_nodes()
        }
        closed = fleet_restraint(self.paused, self.policy, self.stale_agents)
        terms = DomainContext(self.policy, len(self.state.placements), closed, self.granted)
        holdings |= self._domain_marks.decide(terms, self.state.placements, holdings, now)
        freed += self._domain_marks.supersede(self.policy, self.state, holdings, now)
        wants = (want for found in self._wants.values() for want in found)
        asked, outcomes = self._domain_marks.unexplained_requests(wants, holdings, now)
        real = [want for want in asked if self._is_real(want, holdings)]
        ledgers = self.state.budgets.copy()
        scene = AdmissionContext(
            self.policy, self.state.placements, holdings, self.state.usage, self._forbids, now.wall
        )
        allotted = admit(real, scene, ledgers, self.granted)
        outcomes += allotted.decisions
        holdings = {**holdings, **allotted.marks}
        would: dict[RequestKey, Grant] = {}
        if len(real) < len(asked):
            rest = [want for want in asked if not self._is_real(want, holdings)]
            charged = {**self.state.usage, **allotted.usage}
            scene = AdmissionContext(
                self.policy, self.state.placements, holdings, charged, self._forbids, now.wall
            )
            dry_run = admit(rest, scene, ledgers, IncidentState.DRY_RUN, self._would)
            outcomes += dry_run.decisions
            would = dry_run.grants
        self._would_next = would
        self._planned = {
            uid: one
            for uid, one in holdings.items()
            if uid not in resting or one is not self.state.marks(uid)
        }
        return self._written(holdings, outcomes, freed, now)

    def record_issued(self, plan: Plan) -> None:
        """A plan, the latest, has been handed to whoever writes it: from now on it counts."""
        self._would = self._would_next
        uids = {one.uid for one in plan.nodes} | {one.uid for one in plan.rules}
        for uid in uids | {rule.uid for name in plan.rules_gone if (rule := self.state.rules.get(name))}:
            if uid in self._planned:
                self.state.record_issued(uid, self._planned[uid])

    def record_written(self, uid: str, state: str) -> None:
        """What was issued for a node has been written; state: the text that its Desired had."""
        self.state.record_written(uid, state)

    def record_failed(self, uid: str) -> None:
        """What was issued for a node will not be written."""
        self.state.record_failed(uid)

    def drop_issued(self) -> list[str]:
        """Count nothing any more that is issued and not seen to be written; whose that was, by uid."""
        return self.state.drop_issued()

    def incident(self, name: str) -> Incident | None:
        """An incident by its name; None where there is none."""
        return self._incidents.incident(name)

    def pending_incident(self, name: str) -> Incident | None:
        """Return the pending incident of a name; None if no incident of that name is in its grace period."""
        return self._incidents.pending_incident(name)

    def parent_incidents(self, uid: str, now: Instant) -> tuple[Incident, ...]:
        """Incidents of domains and checks that tell of what a node shows."""
        seat, one = self.state.placements.get(uid), self.reports.get(uid)
        if seat is None or one is None:
            return ()
        names = set(self._domain_marks.shared(self.policy, seat, one, now).parents.values())
        return tuple(each for name, each in self.incidents.get(SHARED, {}).items() if name in names)

    def clear(self, incident: Incident, now: Instant) -> None:
        """A person says that a domain, or a check that is held, is in order."""
        self.diagnosis.clear(incident.domain or incident.cause, now.mono)
        self._domain_marks.invalidate()
        self._incidents.touch_all()

    def unmark_all(self) -> Plan:
        """What takes away all that nodeguard has marked; to be paused before, or it comes back."""
        nodes = tuple(
            DesiredNode(
                uid, node.name, cordon=cordon, condition=NodeCondition("", "") if node.condition else None
            )
            for uid, node in self.state.nodes.items()
            for cordon in [False if self.state.marks(uid).node.cordoned else None]
            if node.condition
            or STATE_ANNOTATION in node.annotations
            or any(one.key.startswith(PREFIX) for one in node.taints)
        )
        self.state.drop_issued()
        return Plan(nodes=nodes, rules_gone=tuple(self.state.rules))

    def _mute(self, uid: str) -> None:
        old = self.reports.pop(uid, None)
        if old is not None:
            self.checks.remove(group.checks for group in old.proven)
        self._incidents.touch(uid)

    def _ask(self, uid: str) -> None:
        """What a node's findings ask for, anew."""
        self._witness.update_node(uid)
        seat, one = self.state.placements.get(uid), self.reports.get(uid)
        found = (
            requested_marks(seat, one, self.state.device_finder(uid))
            if seat is not None and one is not None
            else ()
        )
        if found:
            self._wants[uid] = found
        else:
            self._wants.pop(uid, None)
        self._incidents.touch(uid)

    def _is_real(self, want: MarkRequest, holdings: Mapping[str, NodeMarks]) -> bool:
        """Whether a want is for a mark that is set, or stands; else it is only thought of."""
        holding = holdings.get(want.uid)
        if holding is not None and is_marked_for(holding, want):
            return True
        return mode_of(self.policy, want.check, want.mark) == Mode.ENFORCE

    def _forbids(self, want: MarkRequest) -> str:
        seat = self.state.placements[want.uid]
        return mark_restraint(want, seat, self.paused, self.policy, self.stale_agents, self.diagnosis)

    def _condition(self, node: Node, holding: NodeMarks) -> NodeCondition | None:
        """Return the condition that a Node is to have."""
        record, why = holding.node, ""
        if record.degraded:
            blamed = self.diagnosis.degraded_domains.get(record.degraded[0].domain)
            why = degraded_message(blamed, self.policy.diagnosis) if blamed is not None else ""
        return node_condition(node.name, record, self.reports.get(node.uid), why, node.condition)

    def _written(
        self,
        holdings: Mapping[str, NodeMarks],
        outcomes: list[MarkDecision],
        freed: list[tuple[str, ReleasedMark]],
        now: Instant,
    ) -> Plan:
        nodes: list[DesiredNode] = []
        made: list[DeviceRule] = []
        gone = list(self.state.orphaned_rules())
        for uid, planned in list(self._planned.items()):
            seat = self.state.placements.get(uid)
            if seat is None or seat.hold or (planned == self.state.marks(uid) and self.state.is_pending(uid)):
                del self._planned[uid]
                continue
            node, seen = self.state.nodes[uid], self.state.observed_marks(uid).node
            holding = self._planned[uid] = with_cordon(node, seen, planned, self.policy.marks)
            what = desired_node(seat, node, seen, holding, self.policy.marks, self._condition(node, holding))
            if not is_as_desired(node, what):
                nodes.append(what)
            wanted = {rule.name: rule for rule in device_rules(seat, holding)}
            made += [rule for rule in wanted.values() if self.state.rules.get(rule.name) != rule]
            known = {
                *self.state.rule_names(uid),
                *(rule.name for rule in device_rules(seat, self.state.marks(uid))),
            }
            gone += sorted(known - wanted.keys())
            if holding == self.state.marks(uid) and is_as_desired(node, what) and not known:
                if self.releases.proofs.get(uid):
                    self._resting.discard(uid)
                else:
                    self._resting.add(uid, self.stale_agents.stale, self._domain_marks.epoch)
        told = self._incidents.update_nodes(
            self.policy,
            holdings,
            outcomes,
            lambda seat, told: self._domain_marks.shared(self.policy, seat, told, now),
            now,
        )
        of_many = self._incidents.update_shared(self._domain_marks.incidents(self.policy.diagnosis, now), now)
        return Plan(
            tuple(nodes),
            tuple(made),
            tuple(dict.fromkeys(gone)),
            (*told.changed, *of_many.changed),
            (*told.events, *of_many.events),
            tuple(freed),
            tuple(told.transient),
        )
