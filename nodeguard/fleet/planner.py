"""The planner: what is known of the fleet, and the plan that follows from it.

It does no input or output and has no clock: the same calls lead to the same plans. Nodes are told by uid.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from nodeguard.fleet.admission import Grant, Name, Outcome, Scene, allot, stands
from nodeguard.fleet.blame.diagnosis import Diagnosis
from nodeguard.fleet.condition import condition
from nodeguard.fleet.domains.covering import Cover, Terms
from nodeguard.fleet.domains.domains import Domains
from nodeguard.fleet.domains.witness import Witness
from nodeguard.fleet.domains.words import why_blamed
from nodeguard.fleet.heard import Heard, Shared, heard
from nodeguard.fleet.holding import Holding, cordoning, desired, is_as_desired, rules
from nodeguard.fleet.known import Known
from nodeguard.fleet.modes import mode_of
from nodeguard.fleet.parts import Parts
from nodeguard.fleet.plan import Plan
from nodeguard.fleet.release import Freed
from nodeguard.fleet.releasing import Releases
from nodeguard.fleet.resting import Resting
from nodeguard.fleet.restraints import forbids, forbids_all
from nodeguard.fleet.roster import Roster
from nodeguard.fleet.silence import Silence
from nodeguard.fleet.telling import MANY, Telling
from nodeguard.fleet.want import Want, wants
from nodeguard.model.incident import Incident, State
from nodeguard.model.instant import Instant
from nodeguard.model.mark import STATE, Desired, DeviceRule
from nodeguard.model.node import PREFIX, Condition, Device, Node
from nodeguard.model.policy import Mode, Policy
from nodeguard.wire.report import Report


class Planner:
    """What is known of the fleet.

    policy: what may be done. checks: names of all in the catalogue; others are known as agents tell of them.
    paused: why nothing new is marked, by people's word; empty where it may be. heard, outcomes, incidents: of
    each node that there is anything of. releases: what is released, and why the rest stays. parts: what fails
    again and again.
    """

    def __init__(self, policy: Policy, checks: Iterable[str], granted: State = State.MARKED) -> None:
        """granted: the state of a mark that is granted: `Advised` where no cluster carries it."""
        self.granted = granted
        self.checks = Known(checks)
        self.roster = Roster(policy, self.checks)
        self.paused = ""
        self.heard: dict[str, Heard] = {}
        self.silence = Silence()
        self._shared = Shared()
        self._wants: dict[str, tuple[Want, ...]] = {}
        # What a dry run grants: of the latest plan, and of the one before it, which the latest builds on.
        self._would: dict[Name, Grant] = {}
        self._would_next: dict[Name, Grant] = {}
        self._planned: dict[str, Holding] = {}
        self._resting = Resting(self.roster, self.heard)
        self._witness = Witness(policy.blame, self.roster, self.heard)
        self._domains = Domains(self._witness)
        self.releases = Releases(self.roster, self.heard, self._domains, self.checks)
        self.parts = Parts(self._domains.told_by)
        self._telling = Telling(self.roster, self.heard, self.releases.proofs, granted)

    @property
    def witness(self) -> Witness:
        """What the diagnosis is told of, and by whom."""
        return self._witness

    @property
    def diagnosis(self) -> Diagnosis:
        """What the nodes' findings say of what they share."""
        return self._witness.diagnosis

    @property
    def incidents(self) -> dict[str, dict[str, Incident]]:
        """By uid of their Node, empty for those of domains and checks, and by name."""
        return self._telling.incidents

    @property
    def pending(self) -> Mapping[str, Mapping[str, Incident]]:
        """Incidents whose mark is in its grace period, which nothing is recorded of yet, in the same way."""
        return self._telling.pending

    @property
    def incidents_left_out(self) -> Mapping[str, frozenset[str]]:
        """Names of incidents for which there is no room now, by uid of their Node."""
        return self._telling.left_out

    @property
    def incidents_left_out_ever(self) -> int:
        """How many incidents found no room since the start."""
        return self._telling.left_out_ever

    @property
    def outcomes(self) -> Mapping[str, tuple[Outcome, ...]]:
        """What became of each node's wants in the latest plan."""
        return self._telling.outcomes

    @property
    def covers(self) -> Mapping[str, Cover]:
        """What becomes of the domains that are to blame."""
        return self._domains.covers

    @property
    def policy(self) -> Policy:
        """What may be done."""
        return self.roster.policy

    @property
    def last(self) -> Mapping[str, float]:
        """When each node was heard last, in seconds of the monotonic clock."""
        return self.roster.attendance.last

    def adopt(self, policy: Policy) -> None:
        """Another policy, from the next plan on."""
        self.roster.adopt(policy)
        self._witness.adopt(policy.blame)
        self._telling.again()
        for uid in self.heard:
            self._ask(uid)

    def recall(self, incidents: Iterable[Incident]) -> None:
        """Incidents that were told of before this planner was: at the start, once."""
        self._telling.recall(incidents)

    def node(self, node: Node) -> None:
        """A Node as it is now; it takes the place of another of its name."""
        old = self.roster.uid(node.name)
        if old and old != node.uid:
            self.gone(old)
        self.roster.node(node)
        self._ask(node.uid)

    def gone(self, uid: str) -> None:
        """A Node that is no more, and with it all that was said of it, but for its incidents."""
        self.roster.gone(uid)
        self._witness.gone(uid)
        self._mute(uid)
        self.roster.attendance.forget(uid)
        self._wants.pop(uid, None)
        self.releases.gone(uid)
        self._resting.rouse(uid)
        self.parts.gone(uid)
        self._telling.gone(uid)

    def devices(self, node: str, devices: Iterable[Device]) -> None:
        """The devices that are published of a node, by its name."""
        self.roster.devices(node, devices)
        uid = self.roster.uid(node)
        if uid:
            self._ask(uid)

    def hear(self, uid: str, report: Report, now: Instant) -> None:
        """A node's report."""
        self.roster.hear(uid)
        self._mute(uid)
        one = self.heard[uid] = heard(report, now, self._shared)
        self.checks.join(group.checks for group in one.proven)
        self.roster.attendance.hear(uid, now.mono)
        self._witness.hear(uid, now)
        self.parts.hear(uid, report.node, one, now)
        self._ask(uid)

    def beat(self, uid: str, now: Instant) -> None:
        """A node whose report stands as it was."""
        self.roster.attendance.hear(uid, now.mono)
        known = self.heard.get(uid)
        if known is not None and known.late:
            self.heard[uid] = replace(known, late=False)
            self._witness.hear(uid, now)
            self._ask(uid)

    def tick(self, now: Instant) -> None:
        """Time has passed: who is silent? To be called every second or so."""
        self._would = self._would_next
        self.silence = self.silence_at(now)
        self._witness.silent(self.silence.silent, now)
        self._telling.forget(now.wall)
        self.parts.tick(now)

    def silence_at(self, now: Instant) -> Silence:
        """Return which agents do not report at this moment: what the next `tick` finds."""
        silent, roster = self.policy.silent, self.roster
        return roster.attendance.silence(now.mono, silent.after, silent.freeze, roster.ledgers.size)

    def plan(self, now: Instant) -> Plan:
        """What is to be done now: the same again, until it is `issued` or seen to be done."""
        freed: list[tuple[str, Freed]] = []
        before = {uid: self.roster.holding(uid) for uid in self.roster.remembered()}
        self._domains.recall(before, self.incidents.get(MANY, {}).values(), now)
        # What rests may be touched by what is blamed or held now, and was not before.
        if self.diagnosis.settle(now.mono):
            self._domains.again()
            self._telling.touch_all()
        silent, epoch = self.silence.silent, self._domains.epoch
        resting = {
            uid for uid in self.roster.remembered() if self._resting.rests(uid, silent, epoch, now.wall)
        }
        holdings = {
            uid: self.roster.holding(uid) if uid in resting else self.releases.left(uid, silent, now, freed)
            for uid in self.roster.remembered()
        }
        closed = forbids_all(self.paused, self.policy, self.silence)
        terms = Terms(self.policy, len(self.roster.seats), closed, self.granted)
        holdings |= self._domains.cover(terms, self.roster.seats, holdings, now)
        freed += self._domains.supersede(self.policy, self.roster, holdings, now)
        wants = (want for found in self._wants.values() for want in found)
        asked, outcomes = self._domains.asked(wants, holdings, now)
        real = [want for want in asked if self._is_real(want, holdings)]
        ledgers = self.roster.ledgers.copy()
        scene = Scene(self.policy, self.roster.seats, holdings, self.roster.charged, self._forbids, now.wall)
        allotted = allot(real, scene, ledgers, self.granted)
        outcomes += allotted.outcomes
        holdings = {**holdings, **allotted.holdings}
        would: dict[Name, Grant] = {}
        if len(real) < len(asked):
            rest = [want for want in asked if not self._is_real(want, holdings)]
            charged = {**self.roster.charged, **allotted.charged}
            scene = Scene(self.policy, self.roster.seats, holdings, charged, self._forbids, now.wall)
            dry_run = allot(rest, scene, ledgers, State.DRY_RUN, self._would)
            outcomes += dry_run.outcomes
            would = dry_run.grants
        self._would_next = would
        self._planned = {
            uid: one
            for uid, one in holdings.items()
            if uid not in resting or one is not self.roster.holding(uid)
        }
        return self._written(holdings, outcomes, freed, now)

    def issued(self, plan: Plan) -> None:
        """A plan, the latest, has been handed to whoever writes it: from now on it counts."""
        self._would = self._would_next
        uids = {one.uid for one in plan.nodes} | {one.uid for one in plan.rules}
        for uid in uids | {rule.uid for name in plan.rules_gone if (rule := self.roster.rules.get(name))}:
            if uid in self._planned:
                self.roster.issued(uid, self._planned[uid])

    def written(self, uid: str, state: str) -> None:
        """What was issued for a node has been written; state: the text that its Desired had."""
        self.roster.written(uid, state)

    def failed(self, uid: str) -> None:
        """What was issued for a node will not be written."""
        self.roster.failed(uid)

    def drop(self) -> list[str]:
        """Count nothing any more that is issued and not seen to be written; whose that was, by uid."""
        return self.roster.drop()

    def incident(self, name: str) -> Incident | None:
        """An incident by its name; None where there is none."""
        return self._telling.incident(name)

    def pending_incident(self, name: str) -> Incident | None:
        """Return the pending incident of a name; None if no incident of that name is in its grace period."""
        return self._telling.pending_incident(name)

    def parents(self, uid: str, now: Instant) -> tuple[Incident, ...]:
        """Incidents of domains and checks that tell of what a node shows."""
        seat, one = self.roster.seats.get(uid), self.heard.get(uid)
        if seat is None or one is None:
            return ()
        names = set(self._domains.shared(self.policy, seat, one, now).parents.values())
        return tuple(each for name, each in self.incidents.get(MANY, {}).items() if name in names)

    def clear(self, incident: Incident, now: Instant) -> None:
        """A person says that a domain, or a check that is held, is in order."""
        self.diagnosis.clear(incident.domain or incident.cause, now.mono)
        self._domains.again()
        self._telling.touch_all()

    def unmark(self) -> Plan:
        """What takes away all that nodeguard has marked; to be paused before, or it comes back."""
        nodes = tuple(
            Desired(uid, node.name, cordon=cordon, condition=Condition("", "") if node.condition else None)
            for uid, node in self.roster.nodes.items()
            for cordon in [False if self.roster.holding(uid).node.cordoned else None]
            if node.condition
            or STATE in node.annotations
            or any(one.key.startswith(PREFIX) for one in node.taints)
        )
        self.roster.drop()
        return Plan(nodes=nodes, rules_gone=tuple(self.roster.rules))

    def _mute(self, uid: str) -> None:
        old = self.heard.pop(uid, None)
        if old is not None:
            self.checks.leave(group.checks for group in old.proven)
        self._telling.touch(uid)

    def _ask(self, uid: str) -> None:
        """What a node's findings ask for, anew."""
        self._witness.sit(uid)
        seat, one = self.roster.seats.get(uid), self.heard.get(uid)
        found = wants(seat, one, self.roster.find(uid)) if seat is not None and one is not None else ()
        if found:
            self._wants[uid] = found
        else:
            self._wants.pop(uid, None)
        self._telling.touch(uid)

    def _is_real(self, want: Want, holdings: Mapping[str, Holding]) -> bool:
        """Whether a want is for a mark that is set, or stands; else it is only thought of."""
        holding = holdings.get(want.uid)
        if holding is not None and stands(holding, want):
            return True
        return mode_of(self.policy, want.check, want.mark) == Mode.ENFORCE

    def _forbids(self, want: Want) -> str:
        seat = self.roster.seats[want.uid]
        return forbids(want, seat, self.paused, self.policy, self.silence, self.diagnosis)

    def _condition(self, node: Node, holding: Holding) -> Condition | None:
        """Return the condition that a Node is to have."""
        record, why = holding.node, ""
        if record.degraded:
            blamed = self.diagnosis.blamed.get(record.degraded[0].domain)
            why = why_blamed(blamed, self.policy.blame) if blamed is not None else ""
        return condition(node.name, record, self.heard.get(node.uid), why, node.condition)

    def _written(
        self,
        holdings: Mapping[str, Holding],
        outcomes: list[Outcome],
        freed: list[tuple[str, Freed]],
        now: Instant,
    ) -> Plan:
        nodes: list[Desired] = []
        made: list[DeviceRule] = []
        gone = list(self.roster.astray())
        for uid, planned in list(self._planned.items()):
            seat = self.roster.seats.get(uid)
            if (
                seat is None
                or seat.hold
                or (planned == self.roster.holding(uid) and self.roster.is_pending(uid))
            ):
                del self._planned[uid]
                continue
            node, seen = self.roster.nodes[uid], self.roster.observed(uid).node
            holding = self._planned[uid] = cordoning(node, seen, planned, self.policy.marks)
            what = desired(seat, node, seen, holding, self.policy.marks, self._condition(node, holding))
            if not is_as_desired(node, what):
                nodes.append(what)
            wanted = {rule.name: rule for rule in rules(seat, holding)}
            made += [rule for rule in wanted.values() if self.roster.rules.get(rule.name) != rule]
            known = {
                *self.roster.rules_of(uid),
                *(rule.name for rule in rules(seat, self.roster.holding(uid))),
            }
            gone += sorted(known - wanted.keys())
            if holding == self.roster.holding(uid) and is_as_desired(node, what) and not known:
                if self.releases.proofs.get(uid):
                    self._resting.rouse(uid)
                else:
                    self._resting.lay_down(uid, self.silence.silent, self._domains.epoch)
        told = self._telling.told(
            self.policy,
            holdings,
            outcomes,
            lambda seat, told: self._domains.shared(self.policy, seat, told, now),
            now,
        )
        of_many = self._telling.told_of_many(self._domains.incidents(self.policy.blame, now), now)
        return Plan(
            tuple(nodes),
            tuple(made),
            tuple(dict.fromkeys(gone)),
            (*told.changed, *of_many.changed),
            (*told.events, *of_many.events),
            tuple(freed),
            tuple(told.brief),
        )
