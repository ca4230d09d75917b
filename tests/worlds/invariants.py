"""Invariants of every plan and every write in a world."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf
from typing import TYPE_CHECKING

from nodeguard.executors.kube.desired import DesiredNode, DeviceRule
from nodeguard.fleet.decide.admission import MarkDecision
from nodeguard.fleet.decide.release import ReleasedMark
from nodeguard.fleet.policy_rules import hold_on_check, mode_of
from nodeguard.fleet.state.liveness import LONG_STALE
from nodeguard.model.device import device_mark_name
from nodeguard.model.diagnosis import STALE_CHECK, FaultClass
from nodeguard.model.finding import DataStatus, Health
from nodeguard.model.incident import IncidentState
from nodeguard.model.mark import (
    HOLD_ANNOTATION,
    MAINTENANCE_ANNOTATION,
    MARK_OF_HEALTH,
    DegradedMark,
    Mark,
    MarkCause,
    MarkRecord,
)
from nodeguard.model.node import PREFIX, Node
from nodeguard.model.policy import Mode
from nodeguard.wire.report import Report
from tests.fleet.cluster_planner import ClusterPlan
from tests.fleet.plain_silence import silence
from tests.worlds.drains import check_drains
from tests.worlds.requirement import require
from tests.worlds.usage import BudgetCount, domain_budget_excess, domains_of, node_record, record_of

if TYPE_CHECKING:
    from tests.worlds.world import World


class Invariants:
    """The invariants of one aggregator's plans and writes."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._aggregator = world.aggregator
        # Since when each node's latest reports prove that a check passes, by uid, check and target.
        self._passing: dict[tuple[str, str, str], float] = {}

    # Plans.

    def check_plan(self, plan: ClusterPlan) -> None:
        """Check a plan before it is carried out."""
        self._update_passing()
        self._check_decisions()
        check_drains(self._world, self._stale(), is_frozen=self._frozen())
        if not (plan.nodes or plan.rules or plan.rules_gone or plan.released):
            return
        stale = self._stale()
        records = self._records()
        released = {(uid, mark.cause.check, mark.cause.target): mark for uid, mark in plan.released}
        for desired in plan.nodes:
            node = self._world.cluster.nodes.get(desired.uid)
            require(node is not None, "a Node that does not exist is not written", desired)
            assert node is not None
            require(HOLD_ANNOTATION not in node.annotations, "a Node with a hold is not written", desired)
            self._check_record(node, records.get(node.uid, ()), record_of(desired.state), stale, released)
            self._check_degraded(node, record_of(desired.state), desired)
        for rule in plan.rules:
            is_new = rule.name not in self._world.cluster.rules
            for cause in record_of(rule.state).causes if is_new else ():
                self._check_mark(self._world.cluster.nodes[rule.uid], cause, stale)
        for uid, mark in plan.released:
            self._check_release(uid, mark, stale)
        self._check_budgets(plan, records)

    def _records(self) -> dict[str, tuple[MarkRecord, ...]]:
        """Return the records that are on each Node, or may be soon."""
        records: dict[str, tuple[MarkRecord, ...]] = {
            uid: (record,)
            for uid, node in self._world.cluster.nodes.items()
            if (record := node_record(node)) != MarkRecord()
        }
        for write, _ in self._world.flying.values():
            if isinstance(write, DesiredNode):
                records[write.uid] = (*records.get(write.uid, ()), record_of(write.state))
        return records

    def _stale(self) -> frozenset[str]:
        """Return the uids with a stale agent, by the messages that the aggregator accepted."""
        since = self._world.mono - self._world.policy.stale.after
        messages = self._aggregator.messages
        return frozenset(uid for uid in self._world.cluster.nodes if messages.get(uid, -inf) <= since)

    def _update_passing(self) -> None:
        """Update since when checks pass with fresh data."""
        now, stale = self._world.mono, self._stale()
        passing: dict[tuple[str, str, str], float] = {}
        records = self._records()
        for uid in records.keys() | {rule.uid for rule in self._world.cluster.rules.values()}:
            report = self._aggregator.accepted.get(uid)
            if report is None or uid in stale or not self._counts(uid, report):
                continue
            causes = [cause for of in records.get(uid, ()) for cause in of.causes]
            causes += [
                cause
                for rule in self._world.cluster.rules.values()
                if rule.uid == uid
                for cause in record_of(rule.state).causes
            ]
            for cause in causes:
                if self._proves(report, cause):
                    name = uid, cause.check, cause.target
                    passing[name] = self._passing.get(name, now)
        self._passing = passing

    def _proves(self, report: Report, cause: MarkCause) -> bool:
        """Return whether the check of a cause passes on its target, and finds nothing there; and, of the cause
        of an injected fault, whether it is injected no more. An injected fault keeps no mark of a real one.
        """
        injected = (fault.finding for fault in report.injections) if cause.injected else ()
        return all(
            finding.check != cause.check or cause.target not in {finding.target, *finding.targets}
            for finding in (*report.findings, *injected)
        ) and any(cause.check in group.checks and cause.target in group.targets for group in report.passing)

    def _counts(self, uid: str, report: Report) -> bool:
        """Return whether a report is not late, or was confirmed by a heartbeat."""
        return report.age <= 10.0 or uid in self._aggregator.confirmed

    def _check_observed(self, decision: MarkDecision) -> None:
        """Check that a mark that is reported as set keeps work off its object."""
        cluster, request = self._world.cluster, decision.request
        node = cluster.nodes.get(request.uid)
        keys = {taint.key for taint in node.taints} if node is not None else set[str]()
        names = {request.mark.key, Mark.QUARANTINE.key}
        is_on_device = request.device is not None and (
            device_mark_name(request.uid, request.device) in cluster.rules
        )
        # Another client may have removed the taint only.
        is_cordoned = node is not None and node.unschedulable and request.mark == Mark.QUARANTINE
        is_kept = is_on_device or keys & names or (is_cordoned and self._world.policy.marks.cordon)
        require(is_kept or node is None, "a mark that is reported is on its object", decision)

    def _check_decisions(self) -> None:
        planner = self._world.planner
        for uid, decisions in planner.tracker.decisions.items():
            keys = [decision.request.key for decision in decisions]
            require(len(keys) == len(set(keys)), "a request has one decision", uid, keys)
            for decision in decisions:
                self._world.counts[f"decision {decision.state.slug}"] += 1
                if decision.state in {IncidentState.WITHHELD, IncidentState.OPEN}:
                    require(decision.reason, "a mark that is not set has a reason", decision)
                if decision.state == IncidentState.MARKED:
                    self._check_observed(decision)
                if decision.state == IncidentState.PENDING and not decision.is_being_written:
                    require(decision.until > self._world.wall, "a grace period ends later", decision)
        for domain in planner.domain_marks.decisions.values():
            self._world.counts[f"domain {domain.state.slug}"] += 1
            if domain.state == IncidentState.WITHHELD:
                require(domain.reason, "a domain mark that is not set has a reason", domain)
            require(domain.evidence and domain.clears_when, "a degraded domain has its evidence", domain)
        self._world.counts["suppressed"] += bool(planner.diagnosis.suppressed_checks)
        suppressions = planner.diagnosis.suppressed_checks.values()
        self._world.suppressed_versions.update(item.domain for item in suppressions if item.domain)
        self._world.counts["frozen"] += bool(planner.stale_agents.frozen)
        self._world.counts["stale"] += bool(planner.stale_agents.stale)

    # New marks.

    def _check_record(
        self,
        node: Node,
        before: tuple[MarkRecord, ...],
        after: MarkRecord,
        stale: frozenset[str],
        released: Mapping[tuple[str, str, str], ReleasedMark],
    ) -> None:
        current = {
            (cause.check, cause.target, mark)
            for record in before
            for cause in record.causes
            for mark in {cause.mark, Mark.SUSPECT}
        }
        for cause in after.causes:
            if (cause.check, cause.target, cause.mark) not in current:
                self._check_mark(node, cause, stale)
        remaining = {(cause.check, cause.target) for cause in after.causes}
        for cause in node_record(node).causes:
            name = (cause.check, cause.target)
            flying = any(name not in {(c.check, c.target) for c in record.causes} for record in before)
            require(
                name in remaining or (node.uid, *name) in released or flying,
                "a mark that goes is released for a reason",
                node.name,
                cause,
            )

    def _check_mark(self, node: Node, cause: MarkCause, stale: frozenset[str]) -> None:
        """Check that a new mark may be set."""
        world, policy = self._world, self._world.policy
        what = f"{node.name} {cause.check}"
        require(not world.paused and not policy.pause, "no new mark during a pause", what)
        require(
            mode_of(policy, cause.check, cause.mark) == Mode.ENFORCE, "no new mark of an observed check", what
        )
        require(hold_on_check(policy, cause.check) is None, "no new mark of a check on hold", what)
        require(HOLD_ANNOTATION not in node.annotations, "no new mark on a Node on hold", what)
        require(MAINTENANCE_ANNOTATION not in node.annotations, "no new mark in maintenance", what)
        require(node.uid not in stale, "no new mark on a node with a stale agent", what)
        require(not self._frozen(), "no new mark while too many agents are stale", what)
        report = self._aggregator.accepted.get(node.uid)
        require(report is not None, "no new mark without a report", what)
        assert report is not None
        require(self._counts(node.uid, report), "no new mark by a late report", what)
        findings = [fault.finding for fault in report.injections] if cause.injected else list(report.findings)
        finding = next((f for f in findings if (f.check, f.target) == (cause.check, cause.target)), None)
        require(finding is not None, "no new mark without a finding", what)
        assert finding is not None
        require(finding.data_status == DataStatus.FRESH, "no new mark by data that is not fresh", what)
        require(MARK_OF_HEALTH.get(finding.health) == cause.mark, "a mark is that of its finding", what)
        suppression = world.planner.diagnosis.checks.suppression(cause.check, node.uid)
        require(suppression is None, "no new mark of a suppressed check", what, suppression)
        grace = min(policy.grace.quarantine, policy.grace.suspect)
        age = finding.age + report.age + world.mono - self._aggregator.messages[node.uid]
        if grace and report.age < 1e9:
            agent = world.agents[int(node.name.removeprefix("node-"))]
            faults = agent.injections if cause.injected else agent.faults
            fault = faults.get((cause.check, cause.target))
            if fault is not None and agent.uid == node.uid:
                age = max(age, world.mono - fault.began)
            own = policy.grace.quarantine if cause.mark == Mark.QUARANTINE else policy.grace.suspect
            require(age >= own - 1e-6, "no new mark before its grace period ends", what, age)

    def _frozen(self) -> bool:
        state, rule, now = self._world.planner.state, self._world.policy.stale, self._world.mono
        last_reports, started = state.liveness.last_reports, self._aggregator.started
        # A node without a report is stale since the start, at the earliest.
        stale_since = {
            uid: last_reports[uid] + rule.after if uid in last_reports else started
            for uid in state.placements
        }
        long_stale = {uid for uid, since in stale_since.items() if now - since >= LONG_STALE}
        return bool(silence(state.placements, last_reports, now, rule.after, rule.freeze, long_stale).frozen)

    # Releases.

    def _check_release(self, uid: str, mark: ReleasedMark, stale: frozenset[str]) -> None:
        world, cause = self._world, mark.cause
        what = f"{uid} {cause.check}"
        world.counts[f"released {mark.reason}"] += 1
        node = world.cluster.nodes.get(uid)
        require(node is not None, "a mark of a Node that exists is released", what)
        assert node is not None
        require(HOLD_ANNOTATION not in node.annotations, "no release on a Node on hold", what)
        if mark.reason == "proven":
            require(uid not in stale, "no proof by a stale agent", what)
            since = self._passing.get((uid, cause.check, cause.target))
            require(since is not None, "a release has a proof", what)
            assert since is not None
            soak = world.policy.soak.first
            require(world.mono - since >= soak - 1e-6, "a proof lasts for the soak period", what)
        elif mark.reason == "retracted" and hold_on_check(world.policy, cause.check) is None:
            suppression = world.planner.diagnosis.checks.suppression(cause.check, uid)
            require(suppression is not None, "only a suppressed check retracts", what)
            assert suppression is not None
            require(suppression.retracts, "only a wide suppression retracts", what, suppression)
            # A recorded time is one of the clock before a jump, or after it.
            later = sum(seconds for at, seconds in world.jumps if at > suppression.began)
            began = world.wall - (world.mono - suppression.began) - max(0.0, later)
            require(cause.since >= began - 1.0, "only marks of the episode are retracted", what, cause)
        elif mark.reason == "preempted":
            require(cause.injected, "only the mark of an injected fault is preempted", what)
            world.preempted.add(node.name)
            waits = (
                decision
                for decisions in world.planner.tracker.decisions.values()
                for decision in decisions
                if decision.restraint == "budget" and not decision.request.injected
            )
            require(any(waits), "a real fault waits for the budget of a preempted mark", what)
        elif mark.reason == "superseded":
            require(node_record(node).degraded, "a domain mark that supersedes is written", what)
        elif mark.reason == "removed":
            require(all(taint.key != cause.mark.key for taint in node.taints), "a removed mark is gone", what)
        else:
            require(mark.reason in {"retracted", "gone"}, "a release has a known reason", what, mark.reason)

    def _check_degraded(self, node: Node, after: MarkRecord, desired: DesiredNode) -> None:
        """Check the new and the released domain marks of a Node."""
        world = self._world
        before = node_record(node).degraded
        for mark in after.degraded:
            if mark in before:
                continue
            what = f"{node.name} {mark.domain}"
            require(not world.paused and not world.policy.pause, "no new domain mark during a pause", what)
            require(not self._frozen(), "no new domain mark while too many agents are stale", what)
            require(mark.taint_value in world.policy.diagnosis.enforce, "only enforced topologies mark", what)
            require(mark.domain in domains_of(node), "a domain mark is on a Node of the domain", what)
        for mark in before:
            if mark not in after.degraded and mark.domain in domains_of(node):
                self._check_domain_release(node, mark, after)

    def _check_domain_release(self, node: Node, mark: DegradedMark, after: MarkRecord) -> None:
        """A domain mark is released when too few nodes show the fault, or those of too few of its children, unless
        another replaces it.
        """
        world = self._world
        name = mark.name or mark.domain
        if any(
            other.domain == mark.domain or (other.name or other.domain) == name for other in after.degraded
        ):
            return
        if "" in world.dismissed or any(
            f"{mark.domain}/".startswith(f"{domain}/")
            for domain in (*world.dismissed, *(other.domain for other in after.degraded))
        ):
            return
        world.counts["released domain"] += 1
        members = [uid for uid, other in world.cluster.nodes.items() if mark.domain in domains_of(other)]
        classes = {of.name: of for of in world.policy.diagnosis.classes}
        for fault_class in (classes[name] for name in mark.fault_classes if name in classes):
            showing = {uid for uid in members if self._shows(uid, mark.taint_value, fault_class)}
            least = max(2.0, fault_class.share / 2 * len(members))
            children, affected = (
                {
                    path
                    for uid in uids
                    for path in domains_of(world.cluster.nodes[uid])
                    if path.startswith(f"{mark.domain}/")
                }
                for uids in (members, showing)
            )
            # Half of the children make a parent degraded, or both of two; half of these keep it degraded.
            least_children = max(2, -(-max(2, -(-len(children) // 2)) // 2)) if children else 0
            require(
                len(showing) < least or len(affected) < least_children,
                "a domain mark stays while its nodes show the fault",
                f"{node.name} {mark.domain}",
                f"{len(showing)} of {len(members)} show {fault_class.name}",
            )

    def _shows(self, uid: str, topology: str, fault_class: FaultClass) -> bool:
        report = self._aggregator.accepted.get(uid)
        if report is None:
            return False
        if STALE_CHECK in fault_class.checks:
            return uid in self._stale() and not report.leaving
        names = {rule.topology for rule in fault_class.topologies}
        return any(
            (finding.check in fault_class.checks or "*" in fault_class.checks)
            and not names.isdisjoint(finding.topologies)
            and topology in finding.topologies
            and (finding.health != Health.WARNING or fault_class.lasting)
            for finding in report.findings
        )

    # Budgets.

    def _check_budgets(self, plan: ClusterPlan, records: dict[str, tuple[MarkRecord, ...]]) -> None:
        world, policy = self._world, self._world.policy
        flying = [write for write, _ in world.flying.values() if isinstance(write, DeviceRule)]
        rules = {rule.name: rule for rule in (*world.cluster.rules.values(), *flying)}
        after = dict(records)
        for desired in plan.nodes:
            after[desired.uid] = (*records.get(desired.uid, ()), record_of(desired.state))
        nodes, wall = world.cluster.nodes, world.wall
        confirmed = {
            uid
            for uid, report in self._aggregator.accepted.items()
            if {"kmsg", "nvml"} <= {item.source for finding in report.findings for item in finding.evidence}
        }
        before_count = BudgetCount(nodes, records, rules.values(), policy, wall, confirmed)
        rules_after = {**rules, **{rule.name: rule for rule in plan.rules}}
        after_count = BudgetCount(nodes, after, rules_after.values(), policy, wall, confirmed)
        excess = after_count.excess(before_count)
        require(not excess, "no budget is exceeded", excess)
        for invariant, excess in domain_budget_excess(records, after, nodes, policy.budget, wall):
            require(not excess, invariant, excess)

    # Writes.

    def check_write(self, before: Node, after: Node) -> None:
        """Check a write on a Node: the fields of others stay."""
        theirs = [
            [taint for taint in node.taints if not taint.key.startswith(PREFIX)] for node in (before, after)
        ]
        require(theirs[0] == theirs[1], "taints of others stay", before.name)
        for key in (HOLD_ANNOTATION, MAINTENANCE_ANNOTATION):
            is_same = before.annotations.get(key) == after.annotations.get(key)
            require(is_same, "annotations stay", before.name)
        if before.uid in self._world.cluster.cordoned:
            require(after.unschedulable, "an operator's cordon stays", before.name)

    def unreleased(self) -> Iterator[str]:
        """Yield the marks with a proof that should be released by now."""
        longest = self._world.policy.soak.maximum
        for (uid, check, _), since in self._passing.items():
            node = self._world.cluster.nodes[uid]
            blocked = {HOLD_ANNOTATION, MAINTENANCE_ANNOTATION} & node.annotations.keys()
            if self._world.mono - since > longest + 3_600.0 and not blocked:
                yield f"{node.name} {check}"
