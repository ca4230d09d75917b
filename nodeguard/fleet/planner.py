"""The planner of the fleet: it takes reports, Nodes and operators' inputs, and makes the plan.

It reads no clock and does no I/O: the same calls lead to the same plans. Nodes are named by uid.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import partial
from math import inf

from msgspec.structs import replace

from nodeguard.fleet.components.component_faults import ComponentFaultTracker
from nodeguard.fleet.decide.admission import Admissions
from nodeguard.fleet.decide.admission_state import AdmissionContext
from nodeguard.fleet.decide.domain_decision import DomainContext
from nodeguard.fleet.decide.domain_marks import DomainMarks
from nodeguard.fleet.decide.failed_writes import FailedWrites
from nodeguard.fleet.decide.mark_requests import MarkRequest, MarkRequests
from nodeguard.fleet.decide.observed_marks import PlanObservation, UnobservedWrites
from nodeguard.fleet.decide.release import ReleasedMark
from nodeguard.fleet.decide.release_tracker import ReleaseTracker
from nodeguard.fleet.decide.restored_diagnosis import RestoredDiagnosis
from nodeguard.fleet.decide.restraints import Restraint, fleet_restraint, mark_restraint
from nodeguard.fleet.diagnosis.diagnosis import Diagnosis
from nodeguard.fleet.diagnosis.results import JOB
from nodeguard.fleet.diagnosis.vote_collector import VoteCollector
from nodeguard.fleet.incidents.domain_incidents import SharedIncidents
from nodeguard.fleet.incidents.tracker import SHARED, IncidentTracker
from nodeguard.fleet.plan import Carries, Plan, health_facts, plan_nodes, shows_decision
from nodeguard.fleet.state.fleet_state import FleetState
from nodeguard.fleet.state.latest_report import LatestReport, limit_topologies
from nodeguard.fleet.state.liveness import StaleAgents
from nodeguard.model.decision import HealthFacts, NodeDecision
from nodeguard.model.device import Device
from nodeguard.model.incident import Incident, IncidentState
from nodeguard.model.instant import Instant
from nodeguard.model.inventory import InventoryNode, ObservedMarks
from nodeguard.model.mark import MarkRecord
from nodeguard.model.policy import Policy
from nodeguard.wire.report import Report

_ANY_TOPOLOGY: Mapping[str, Collection[str]] = {}


class Planner:
    """Plans the marks of the fleet from its state.

    state: nodes, reports, marks and budgets. paused: reason of the operators' pause; empty for none.
    stale_agents: as of the latest `tick` or plan. vote_collector: collects the votes that the diagnosis
    evaluates. releases: proofs, and the wait of each mark. component_faults: of repeat offenders. tracker: of
    incidents, with the decisions on mark requests. domain_marks: with the decisions on degraded domains.
    admissions: with the grants of the dry run. unobserved_writes: of the latest plan.
    """

    def __init__(
        self,
        policy: Policy,
        checks: Iterable[str],
        granted: IncidentState = IncidentState.MARKED,
        topologies: Mapping[str, Collection[str]] = _ANY_TOPOLOGY,
        carries: Carries | None = None,
    ) -> None:
        """checks: names of the checks in the catalogue. granted: the state of a granted mark: `Advised` if no
        cluster carries it. topologies: in which the checks may vote; those that are not in it vote as the
        agents report. carries: see Carries; None to compare with the observed marks only.
        """
        self.granted = granted
        self.topologies = topologies
        self.state = FleetState(policy, checks)
        self.paused = ""
        self.stale_agents = StaleAgents()
        self._carries = carries or partial(shows_decision, self.state)
        self._requests = MarkRequests(self.state)
        self.admissions = Admissions(granted)
        # Nodes with the desired marks: the plan skips them until their inputs or the diagnosis change.
        self._settled: set[str] = set()
        self._failed_writes = FailedWrites()
        self.vote_collector = VoteCollector(policy.diagnosis, self.state)
        self._restored = RestoredDiagnosis(self.vote_collector)
        self.domain_marks = DomainMarks(self.vote_collector, self._restored)
        self.releases = ReleaseTracker(self.state, self.domain_marks)
        self._shared_incidents = SharedIncidents(self.vote_collector, self.domain_marks)
        self.component_faults = ComponentFaultTracker(self._shared_incidents.parent_incident)
        self.unobserved_writes = UnobservedWrites()
        self.tracker = IncidentTracker(self.state, self.releases.wait, granted)

    @property
    def diagnosis(self) -> Diagnosis:
        """Return the diagnosis: degraded domains and suppressed checks."""
        return self.vote_collector.diagnosis

    def all_incidents(self) -> list[Incident]:
        """Return the incidents of all Nodes, domains and checks."""
        return list(self.tracker.recorded.every())

    def node(self, uid: str) -> InventoryNode | None:
        """Return the node of a uid; None if there is none."""
        return self.state.nodes.get(uid)

    def node_named(self, name: str) -> InventoryNode | None:
        """Return the node of a name; None if there is none."""
        return self.state.nodes.get(self.state.uid(name))

    @property
    def inputs(self) -> tuple[object, ...]:
        """Return a value that changes with every input of the plan but time."""
        votes, incidents = self.diagnosis.voting.has_changed, bool(self.tracker.touched)
        return self.state.changes, self.paused, self.policy, self.stale_agents, votes, incidents

    @property
    def policy(self) -> Policy:
        """Return the policy in force."""
        return self.state.policy

    @property
    def reports(self) -> Mapping[str, LatestReport]:
        """Return the latest report of each node, by uid."""
        return self.state.reports

    @property
    def last_reports(self) -> Mapping[str, float]:
        """Return when each agent reported last, in seconds of the monotonic clock."""
        return self.state.liveness.last_reports

    def set_policy(self, policy: Policy) -> None:
        """Set the policy, from the next plan on."""
        self.state.set_policy(policy)
        self.vote_collector.set_rule(policy.diagnosis)
        self.tracker.reset()

    def restore_incidents(self, incidents: Iterable[Incident]) -> None:
        """Restore the incidents that were recorded before this planner started; once, at the start."""
        recorded = tuple(incidents)
        self.state.touch_fleet()
        self.state.record_incidents(recorded)
        self.tracker.restore(recorded)
        self._restored.add_incidents(recorded)

    def restore_term(self, began: float, ended: float, now: Instant) -> None:
        """Restore from when until when an earlier aggregator led, in seconds since the epoch: the faults of
        that time that it did not take for shared ones count only beside a new fault.
        """
        self.state.touch_fleet()
        self.diagnosis.voting.earlier_term = now.mono_of(began), min(now.mono, now.mono_of(ended))

    def update_node(
        self, node: InventoryNode, observed: ObservedMarks | None = None, *, is_changed: bool = True
    ) -> None:
        """Update a node; one of the same name and another uid is removed. See FleetState.update_node."""
        old = self.state.uid(node.name)
        if old and old != node.key:
            self.remove_node(old)
        self.state.update_node(node, observed, is_changed=is_changed)

    def remove_node(self, uid: str) -> None:
        """Remove a deleted node and all its data except its incidents."""
        self.state.remove_node(uid)
        self.vote_collector.remove_node(uid)
        self._requests.update_node(uid)
        self.releases.remove_node(uid)
        self.component_faults.remove_node(uid)
        self.tracker.remove_node(uid)
        self._failed_writes.forget(uid)

    def update_devices(self, node: str, devices: Iterable[Device]) -> None:
        """Update the devices that are published for a node, by its name."""
        self.state.update_devices(node, devices)

    def job_nodes(self, now: Instant) -> dict[str, float]:
        """Return the nodes with jobs to read: those that vote, and those with a mark request. Of each node,
        the time of its latest vote or request, in seconds of the monotonic clock.
        """
        nodes = self.diagnosis.voting.current_voters(now.mono)
        for uid, decisions in self.tracker.decisions.items():
            # The jobs of a node are evidence for the diagnosis, and an injected fault is none.
            since = (decision.request.since for decision in decisions if not decision.request.injected)
            latest = max(since, default=None)
            if latest is not None:
                nodes[uid] = max(now.mono_of(latest), nodes.get(uid, -inf))
        return nodes

    def record_report(self, uid: str, report: Report, now: Instant) -> None:
        """Record the report of a node."""
        latest = self.state.record_report(uid, limit_topologies(report, self.topologies), now)
        self.vote_collector.record_report(uid, now)
        self.component_faults.record_report(uid, report.node, latest, now)

    def record_heartbeat(self, uid: str, now: Instant) -> None:
        """Record the heartbeat of a node: its latest report is unchanged."""
        if self.state.record_heartbeat(uid, now):
            self.vote_collector.record_report(uid, now)

    def tick(self, now: Instant) -> None:
        """Update which agents are stale, and all state that depends on time. Call it about every second."""
        self.state.follow_clock(now)
        self.admissions.keep_grants()
        self._update_stale(now)
        self.tracker.forget(now)
        self.component_faults.tick(now)
        self._failed_writes.tick(self.state.marks.pending_nodes(), now.mono)

    def plan(self, now: Instant, limit: int | None = None) -> Plan:
        """Return the plan for now. It stays the same until it is issued or its effect is observed.

        limit: maximum number of nodes with new marks in it, the most severe first, and those with a failed
        latest write last; None for no limit. All marks are decided; once this plan is issued, the next one
        has the rest, so that the first writes do not wait for it.
        """
        self.state.follow_clock(now)
        # An agent that was stale at the latest tick may have reported the fault that this plan decides.
        self._update_stale(now)
        marked, released = self.state.marks.marked_nodes(), list[tuple[str, ReleasedMark]]()
        # In order, so that the same marks are released first in each process.
        before = {uid: self.state.marks.latest(uid) for uid in sorted(marked)}
        self._restored.restore(before, now)
        if self.diagnosis.evaluate(now.mono):
            self._settled.clear()
        self._shared_incidents.follow_diagnosis(self.tracker)
        self._restored.record_degraded()
        settled = {uid for uid in self._settled & marked if self._stays_settled(uid, now)}
        stale = self.stale_agents.stale
        marks = {
            uid: node_marks if uid in settled else self.releases.release(uid, stale, now, released)
            for uid, node_marks in before.items()
        }
        restraint = fleet_restraint(self.paused, self.policy, self.stale_agents)
        age = partial(self.state.clock.age, now=now)
        context = DomainContext(self.policy, len(self.state.placements), age, restraint, self.granted)
        marks |= self.domain_marks.decide(context, self.state.placements, marks, now)
        released += self.domain_marks.supersede(self.policy, self.state, marks, now)
        uncovered, decisions = self.domain_marks.unexplained_requests(self.policy, self._requests, marks, now)
        admission = AdmissionContext(
            self.policy,
            self.state.placements,
            marks,
            self.state.usage,
            partial(self.restraint, now=now),
            now.wall,
            age,
            self._failed_writes.unwritable(now.mono),
            self.state.incident_checks,
        )
        admitted = self.admissions.admit(uncovered, admission, self.state.budgets.copy())
        granted = admitted.granted
        first = len(granted) if limit is None else limit
        deferred = frozenset(self._failed_writes.in_order(granted)[first:])
        marks |= {uid: node_marks for uid, node_marks in granted.items() if uid not in deferred}
        marks |= admitted.preempted
        released += admitted.released
        observation = PlanObservation(self.state, self.unobserved_writes, marks, deferred, now)
        decisions = observation.decisions([*decisions, *admitted.decisions])
        self.domain_marks.decisions = observation.domain_decisions(self.domain_marks.decisions)
        changed = {
            uid: node_marks
            for uid, node_marks in marks.items()
            if uid not in settled or node_marks is not self.state.marks.latest(uid)
        }
        nodes = plan_nodes(self.state, changed, self._facts, self._carries)
        # A mark with a proof, or a deferred one, is released after some time, without another change.
        waiting = self.releases.deferred | {uid for uid, proofs in self.releases.proofs.items() if proofs}
        self._settled |= nodes.settled - waiting
        changes = self._shared_incidents.update(
            self.tracker, self.policy, observation, marks.keys(), decisions, deferred, now
        )
        observation.finish()
        self.state.record_incidents(changes.changed)
        return Plan(
            tuple(nodes.decisions),
            tuple(changes.changed),
            tuple(changes.events),
            tuple(released),
            tuple(changes.transient),
            len(deferred),
        )

    def record_issued(self, plan: Plan) -> None:
        """Record that the latest plan was handed to an executor: from now on it counts."""
        self.admissions.keep_grants()
        for decision in plan.decisions:
            self.state.record_issued(decision.node, decision.records)

    def record_written(self, uid: str, record: MarkRecord) -> None:
        """Record that the write for a node succeeded. record: of the decision."""
        self.state.touch_fleet()
        self._failed_writes.forget(uid)
        self.state.marks.record_written(uid, record)

    def record_failed(self, uid: str) -> None:
        """Record that the write for a node failed."""
        self.state.touch_fleet()
        self._failed_writes.record_failed(uid)
        self.state.record_failed(uid)

    def drop_issued(self) -> tuple[str, ...]:
        """Stop counting what is issued and not observed yet. Returns the uids of these nodes."""
        self.unobserved_writes.forget_errors()
        return self.state.drop_issued()

    def incident(self, name: str) -> Incident | None:
        """Return the incident of a name; None if there is none."""
        return self.tracker.recorded.incident(name)

    def parent_incident(self, uid: str, check: str, since: float, now: Instant) -> Incident | None:
        """Return the incident of a domain, a check or a job that explains a check's finding on a node.

        since: start of the finding, in seconds since the epoch. None if nothing explains it.
        """
        name = self._shared_incidents.parent_incident(uid, check, since, now)
        return self.tracker.recorded.by_uid.get(SHARED, {}).get(name)

    def clear(self, incident: Incident, at: Instant) -> None:
        """Clear an incident of a domain or a check; one that is not restored yet is restored as cleared.

        at: when the operator requested it, also before this start.
        """
        self.state.touch_fleet()
        self._restored.clear(incident.name, at.wall)
        is_of_job = incident.target.startswith(JOB)
        self.diagnosis.clear(incident.target if is_of_job else incident.domain or incident.cause, at.mono)
        self._settled.clear()

    def _update_stale(self, now: Instant) -> None:
        """Update which agents are stale, their votes, and the data of the nodes that changed."""
        self.stale_agents = self.state.stale_agents(now)
        for uid in self.state.liveness.take_changed():
            self.state.touch(uid)
        self._refresh()
        self.vote_collector.update_stale(self.stale_agents.stale, now)

    def _refresh(self) -> None:
        """Update the votes, mark requests and incidents of the nodes that changed."""
        for uid in self.state.take_changed():
            self.vote_collector.update_node(uid)
            self._requests.update_node(uid)
            self.tracker.touch(uid)
            self._settled.discard(uid)

    def _stays_settled(self, uid: str, now: Instant) -> bool:
        """Return whether time changes nothing of a settled node: it has no past charge to forget."""
        marks, forget, age = self.state.marks.latest(uid), self.policy.soak.forget, self.state.clock.age
        return marks.is_marked or any(age(past.ended, now) < forget for past in marks.node.past_charges)

    def restraint(self, request: MarkRequest, now: Instant) -> Restraint | None:
        """Return what forbids the mark of a request, besides budgets; None if nothing does."""
        placement, policy = self.state.placements[request.uid], self.policy
        withheld = self.domain_marks.withheld_message(request, now) if policy.marks.taint else ""
        return mark_restraint(
            request, placement, self.paused, policy, self.stale_agents, self.diagnosis, withheld
        )

    def decision(self, uid: str) -> NodeDecision:
        """Return the decision about a node that is carried out, or being carried out, now."""
        marks = self.state.marks.latest(uid)
        return NodeDecision(uid, self.state.nodes[uid].name, marks, self._facts(uid, marks.node))

    def _facts(self, uid: str, record: MarkRecord) -> HealthFacts:
        """Return the facts about the record of a node."""
        facts = health_facts(record, self.reports.get(uid), self.releases.proofs.get(uid, {}))
        decision = self.domain_marks.decision(record.degraded[0].domain) if record.degraded else None
        if decision is None:
            return facts
        return replace(facts, degraded=decision.evidence, owner=decision.owner)
