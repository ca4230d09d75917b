"""Domain marks in the plan: the marks of degraded domains, and the node marks that they replace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial

from msgspec.structs import replace

from nodeguard.fleet.decide.admission import MarkDecision
from nodeguard.fleet.decide.domain_claims import DomainClaims
from nodeguard.fleet.decide.domain_decision import (
    ActiveDomainMarks,
    DomainContext,
    DomainDecision,
    decide_domains,
)
from nodeguard.fleet.decide.mark_requests import MarkRequest, is_marked_for
from nodeguard.fleet.decide.release import ReleasedMark, without_causes
from nodeguard.fleet.decide.restored_diagnosis import RestoredDiagnosis, degraded_marks
from nodeguard.fleet.diagnosis.messages import clearing_message, degraded_message, owner_of
from nodeguard.fleet.diagnosis.results import BEFORE_FIRST_VOTE, DegradedDomain
from nodeguard.fleet.diagnosis.vote_collector import VoteCollector
from nodeguard.fleet.state.fleet_state import FleetState
from nodeguard.fleet.state.latest_report import LatestReport
from nodeguard.fleet.state.node_placement import NodePlacement
from nodeguard.model.incident import IncidentState
from nodeguard.model.instant import Instant
from nodeguard.model.mark import DegradedMark, MarkCause, NodeMarks
from nodeguard.model.policy import Policy


class DomainMarks:
    """The decisions on degraded domains. decisions: by domain, as of the latest plan."""

    def __init__(self, votes: VoteCollector, restored: RestoredDiagnosis) -> None:
        self.decisions: dict[str, DomainDecision] = {}
        self._votes = votes
        self._restored = restored
        self._claims = DomainClaims(votes, restored)
        # Domains with marks that this aggregator granted.
        self._granted: set[str] = set()

    def decide(
        self,
        context: DomainContext,
        placements: Mapping[str, NodePlacement],
        marks: Mapping[str, NodeMarks],
        now: Instant,
    ) -> dict[str, NodeMarks]:
        """Decide on every degraded domain. Returns the marks of the nodes on which they change, by uid."""
        diagnosis, members = self._votes.diagnosis, self._votes.domain_members
        degraded = diagnosis.degraded_domains
        records = list(degraded_marks(marks))
        if not (degraded or records):
            self.decisions = {}
            return {}
        active = self._active_marks(records)
        nodes = {domain: {*members.nodes(domain), *item.moved} for domain, item in degraded.items()}
        already = tuple(decision for decision in self.decisions.values() if decision.granted_at)
        decisions = decide_domains(degraded.values(), active, nodes, context, now, already)
        rule = context.policy.diagnosis
        self.decisions = {
            decision.degraded.domain: replace(
                decision,
                evidence=degraded_message(decision.degraded, rule),
                clears_when=clearing_message(
                    decision.degraded, len(members.children(decision.degraded.domain)), rule
                ),
                owner=owner_of(decision.degraded, rule),
            )
            for decision in decisions
        }
        self._granted |= {decision.degraded.domain for decision in decisions if decision.mark is not None}
        wanted: dict[str, list[DegradedMark]] = {}
        for decision in decisions:
            own, grows = decision.mark, decision.grows and not context.restraint
            for uid in nodes[decision.degraded.domain]:
                current = marks.get(uid, _NO_MARKS).node.degraded
                if own is not None and (grows or own in current):
                    wanted.setdefault(uid, []).append(own)
                else:
                    wanted.setdefault(uid, []).extend(part for part in decision.parts if part in current)
        others = ((uid, mark) for uid, mark in records if mark not in wanted.get(uid, ()))
        for uid, mark in self._claims.kept_marks(others, decisions, nodes, now):
            wanted.setdefault(uid, []).append(mark)
        changed = {}
        for uid in wanted.keys() | active.nodes | active.unsupported:
            placement, before = placements.get(uid), marks.get(uid, _NO_MARKS)
            if placement is None or placement.hold:
                continue
            after = tuple(sorted(wanted.get(uid, ()), key=lambda mark: (mark.since, mark.domain)))
            if after != before.node.degraded:
                changed[uid] = replace(before, node=replace(before.node, degraded=after))
        return changed

    def _active_marks(self, records: list[tuple[str, DegradedMark]]) -> ActiveDomainMarks:
        """Return the active marks in the records of Nodes. A kubelet can write any record: a domain counts as
        marked if this aggregator granted its marks, an incident supports them, or most of its nodes have one,
        at least as many as make a domain degraded: in a domain of one node, its record is most of them.
        """
        degraded, members = self._votes.diagnosis.degraded_domains, self._votes.domain_members
        current = {path for item in degraded.values() for path in (item.domain, *item.replaced)}
        # The marks of a domain that recovered count until their removal is observed.
        self._granted |= self._restored.take_marked_domains()
        self._granted &= current | {mark.domain for _, mark in records}
        having = Counter(mark.domain for uid, mark in records if uid in members.nodes(mark.domain))
        least = self._votes.diagnosis.rule.min_nodes
        of_most = {
            domain for domain, count in having.items() if count >= least and 2 * count > members.size(domain)
        }
        supported = ((uid, mark) for uid, mark in records if mark.domain in self._granted | of_most)
        return ActiveDomainMarks.of(supported, (uid for uid, _ in records))

    def claim_message(self, uid: str, mark: DegradedMark) -> str:
        """Return what the mark of a domain that is not degraded waits for; empty if it is released."""
        return self._claims.messages.get((uid, mark.domain), "")

    def decision(self, domain: str) -> DomainDecision | None:
        """Return the decision of the latest plan on a domain; None if it is not degraded any more."""
        is_degraded = domain in self._votes.diagnosis.degraded_domains
        return self.decisions.get(domain) if is_degraded else None

    def supersede(
        self, policy: Policy, state: FleetState, marks: dict[str, NodeMarks], now: Instant
    ) -> list[tuple[str, ReleasedMark]]:
        """Remove from `marks` the causes that the mark of a domain covers, once that keeps work off the Node,
        and if it stays. Returns the released marks, by uid.
        """
        released: list[tuple[str, ReleasedMark]] = []
        age = partial(state.clock.age, now=now)
        for uid, node_marks in list(marks.items()) if self.decisions else ():
            placement = state.placements.get(uid)
            if placement is None or placement.hold or not node_marks.node.causes:
                continue
            in_effect, report = state.marks_in_effect(uid).node.degraded, state.reports.get(uid)
            staying = tuple(mark for mark in in_effect if mark in node_marks.node.degraded)
            # The onset decides, as it does for requests; without a finding there is no onset.
            covered = [
                cause
                for cause in node_marks.node.causes
                if (onset := _onset(report, cause)) is not None
                and self._covering_domain(staying, cause.check, onset, now)
            ]
            if covered:
                marks[uid] = without_causes(node_marks, None, covered, policy.soak, now.wall, age)
                released += [(uid, ReleasedMark(cause, "superseded")) for cause in covered]
        return released

    def unexplained_requests(
        self, policy: Policy, requests: Iterable[MarkRequest], marks: Mapping[str, NodeMarks], now: Instant
    ) -> tuple[list[MarkRequest], list[MarkDecision]]:
        """Return the requests that no mark of a domain covers, and the decisions on those that one covers.
        Without a taint, the mark of a domain keeps no work away.
        """
        if not self.decisions or not policy.marks.taint:
            return list(requests), []
        uncovered, covered = [], []
        for request in requests:
            node_marks = marks.get(request.uid, _NO_MARKS)
            is_marked = is_marked_for(node_marks, request)
            domain = self._covering_domain(
                node_marks.node.degraded, request.check, request.since, now, trusts_restored=not is_marked
            )
            if domain:
                reason = f"reported as {domain}, which is degraded"
                covered.append(MarkDecision(request, IncidentState.OPEN, reason))
            else:
                uncovered.append(request)
        return uncovered, covered

    def _covering_domain(
        self,
        marks: Iterable[DegradedMark],
        check: str,
        since: float,
        now: Instant,
        *,
        trusts_restored: bool = False,
    ) -> str:
        """Return the marked domain that explains a finding of a check since a time; empty for none.

        trusts_restored: whether a domain from before this start explains older findings, too: when its nodes
        began to fail is not certain. That sets fewer marks, but must not release any.
        """
        for mark in marks:
            # The marks of parts stay while that of the domain that replaces them is withheld.
            for degraded in self._votes.diagnosis.degraded_domains.values():
                if degraded.has_mark(mark) and self.explains(
                    degraded, check, since, now, trusts_restored=trusts_restored
                ):
                    return mark.domain
        return ""

    def explains(
        self,
        degraded: DegradedDomain,
        check: str,
        since: float,
        now: Instant,
        *,
        trusts_restored: bool = True,
    ) -> bool:
        """Return whether a degraded domain explains a finding of a check on one of its nodes, since a time in
        seconds since the epoch. trusts_restored: see `_covering_domain`.
        """
        is_since = since >= now.wall_of(degraded.began) - BEFORE_FIRST_VOTE
        is_of_class = self._votes.diagnosis.has_fault_class(check, degraded.fault_classes)
        return is_of_class and (is_since or (trusts_restored and degraded.restored))

    def has_node(self, degraded: DegradedDomain, uid: str) -> bool:
        """Return whether a node is in a degraded domain, or left it and still shows the fault."""
        return uid in self._votes.domain_members.nodes(degraded.domain) or uid in degraded.moved

    def withheld_message(self, request: MarkRequest, now: Instant) -> str:
        """Return why a request waits with the mark of a domain that explains it; empty if it does not. One by
        one, its nodes would use up the budgets of other faults within the hour until the domain is marked.
        """
        for decision in self.decisions.values():
            degraded = decision.degraded
            if (
                decision.withholds_nodes
                and self.has_node(degraded, request.uid)
                and self.explains(degraded, request.check, request.since, now)
            ):
                return f"part of {degraded.domain}, which is degraded and withheld: {decision.reason}"
        return ""

    def is_retracted(self, cause: MarkCause, uid: str, now: Instant) -> bool:
        """Return whether the suppression of its check releases a mark: the false alarm is wide, the mark was
        set since it began, by a current report no other source confirms the fault, and it is no fact.
        """
        suppression, evidence = (
            self._votes.diagnosis.checks.suppression(cause.check, uid),
            self._votes.evidence,
        )
        return (
            suppression is not None
            and suppression.retracts
            and evidence.is_marked_since(cause, suppression.began, now)
            and evidence.is_unconfirmed(uid, cause.check)
            and not evidence.is_fact(cause.check, (uid,))
        )


_NO_MARKS = NodeMarks()


def _onset(report: LatestReport | None, cause: MarkCause) -> float | None:
    """Return when the fault of a cause began, in seconds since the epoch; None if it is not reported. An
    injected fault is none for the cause of a real one.
    """
    for fault in report.faults() if report is not None else ():
        is_same = (fault.finding.check, fault.finding.target) == (cause.check, cause.target)
        if is_same and (cause.injected or not fault.injected):
            return fault.began
    return None
