"""The planner: what is known of the fleet, and the plan that follows from it.

It does no input or output and has no clock: the same calls lead to the same plans. Nodes are told by uid.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from nodeguard.fleet.admission import Outcome, Scene, allot, stands
from nodeguard.fleet.heard import Heard, Shared, heard
from nodeguard.fleet.holding import Holding, cordoning, desired, given_back, is_as_desired, rules, standing
from nodeguard.fleet.incidents import Story, event_of, incidents_of, resolved
from nodeguard.fleet.known import Known
from nodeguard.fleet.modes import held_check, mode_of
from nodeguard.fleet.plan import Event, Plan
from nodeguard.fleet.release import Freed, Key, Proof, proofs, released
from nodeguard.fleet.roster import Roster
from nodeguard.fleet.silence import Silence, silence
from nodeguard.fleet.want import Want, wants
from nodeguard.model.incident import Incident, State
from nodeguard.model.instant import Instant
from nodeguard.model.mark import STATE, Cause, Desired, DeviceRule, Record
from nodeguard.model.node import PREFIX, Condition, Device, Node
from nodeguard.model.policy import Mode, Policy
from nodeguard.wire.report import Report

# Seconds for which an incident that is over is remembered, so that it is known when it comes back.
_REMEMBERED = 86_400.0


class Planner:
    """What is known of the fleet.

    policy: what may be done. checks: names of all in the catalogue; others are known as agents tell of them.
    paused: why nothing new is marked, by people's word; empty where it may be. heard, outcomes, proofs,
    incidents: of each node that there is anything of.
    """

    def __init__(self, policy: Policy, checks: Iterable[str]) -> None:
        self.checks = Known(checks)
        self.roster = Roster(policy, self.checks)
        self.paused = ""
        self.heard: dict[str, Heard] = {}
        self.last: dict[str, float] = {}
        self.silence = Silence()
        self.outcomes: dict[str, tuple[Outcome, ...]] = {}
        self.proofs: dict[str, dict[Key, Proof]] = {}
        self.incidents: dict[str, dict[str, Incident]] = {}
        self._shared = Shared()
        self._wants: dict[str, tuple[Want, ...]] = {}
        self._would: dict[tuple[str, str, str], float] = {}
        self._planned: dict[str, Holding] = {}
        self._dirty: set[str] = set()
        self._stories: dict[str, Story] = {}
        self._resting: dict[str, tuple[object, ...]] = {}

    @property
    def policy(self) -> Policy:
        """What may be done."""
        return self.roster.policy

    def adopt(self, policy: Policy) -> None:
        """Another policy, from the next plan on."""
        self.roster.adopt(policy)
        self._stories.clear()
        for uid in self.heard:
            self._ask(uid)

    def recall(self, incidents: Iterable[Incident]) -> None:
        """Incidents that were told of before this planner was: at the start, once."""
        for one in incidents:
            self.incidents.setdefault(one.uid, {})[one.name] = one
            self._dirty.add(one.uid)

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
        self._mute(uid)
        for kept in (self.last, self._wants, self.proofs, self.outcomes, self._stories, self._resting):
            kept.pop(uid, None)

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
        self.last[uid] = now.mono
        self._ask(uid)

    def beat(self, uid: str, now: Instant) -> None:
        """A node whose report stands as it was."""
        self.last[uid] = now.mono
        known = self.heard.get(uid)
        if known is not None and known.late:
            self.heard[uid] = replace(known, late=False)
            self._ask(uid)

    def tick(self, now: Instant) -> None:
        """Time has passed: who is silent? To be called every second or so."""
        silent = self.policy.silent
        self.silence = silence(self.roster.seats, self.last, now.mono, silent.after, silent.freeze)
        for uid, told in list(self.incidents.items()):
            self.incidents[uid] = {name: one for name, one in told.items() if _is_remembered(one, now.wall)}
            if not self.incidents[uid]:
                del self.incidents[uid]

    def plan(self, now: Instant) -> Plan:
        """What is to be done now: the same again, until it is `issued` or seen to be done."""
        freed: list[tuple[str, Freed]] = []
        resting = {uid for uid in self.roster.remembered() if self._rests(uid, now)}
        holdings = {
            uid: self.roster.holding(uid) if uid in resting else self._left_of(uid, now, freed)
            for uid in self.roster.remembered()
        }
        asked = [want for found in self._wants.values() for want in found]
        real = [want for want in asked if self._is_real(want, holdings)]
        ledgers = self.roster.ledgers.copy()
        scene = Scene(self.policy, self.roster.seats, holdings, self.roster.charged, self._bar, now.wall)
        granted, outcomes = allot(real, scene, ledgers, State.MARKED)
        holdings = {**holdings, **granted}
        if len(real) < len(asked):
            rest = [want for want in asked if not self._is_real(want, holdings)]
            charged = {uid: standing(self.roster.seats[uid], one) for uid, one in granted.items()}
            scene = Scene(
                self.policy,
                self.roster.seats,
                holdings,
                {**self.roster.charged, **charged},
                self._bar,
                now.wall,
            )
            _, others = allot(rest, scene, ledgers, State.OBSERVED, self._would)
            outcomes += others
        self._would = {
            one.want.name: self._would.get(one.want.name, now.wall)
            for one in outcomes
            if one.state == State.OBSERVED
        }
        self._planned = {
            uid: one
            for uid, one in holdings.items()
            if uid not in resting or one is not self.roster.holding(uid)
        }
        return self._written(holdings, outcomes, freed, now)

    def issued(self, plan: Plan) -> None:
        """A plan, the latest, has been handed to whoever writes it: from now on it counts."""
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
        return next((told[name] for told in self.incidents.values() if name in told), None)

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
        self._dirty.add(uid)

    def _ask(self, uid: str) -> None:
        """What a node's findings ask for, anew."""
        seat, one = self.roster.seats.get(uid), self.heard.get(uid)
        found = wants(seat, one, self.roster.find(uid)) if seat is not None and one is not None else ()
        if found:
            self._wants[uid] = found
        else:
            self._wants.pop(uid, None)
        self._dirty.add(uid)

    def _is_real(self, want: Want, holdings: Mapping[str, Holding]) -> bool:
        """Whether a want is for a mark that is set, or stands; else it is only thought of."""
        holding = holdings.get(want.uid)
        if holding is not None and stands(holding, want):
            return True
        return mode_of(self.policy, want.check, want.mark) == Mode.ENFORCE

    def _bar(self, want: Want) -> str:
        """Why nothing new may be marked for a want, whatever it costs."""
        seat, held = self.roster.seats[want.uid], held_check(self.policy, want.check)
        if self.paused or self.policy.pause:
            return self.paused or "paused by the policy"
        if held is not None:
            return f"check {want.check} is held: {held}"
        if seat.hold:
            return f"held: {seat.hold}"
        if seat.maintenance:
            return f"under maintenance: {seat.maintenance}"
        if want.uid in self.silence.silent:
            return "nothing is heard from the node any more"
        return self.silence.frozen

    def _left_of(self, uid: str, now: Instant, freed: list[tuple[str, Freed]]) -> Holding:
        """What a node is to hold after what is given back."""
        holding, seat = self.roster.holding(uid), self.roster.seats.get(uid)
        if seat is None or seat.hold:
            return holding
        speaks = not seat.maintenance and uid not in self.silence.silent
        told = self.heard.get(uid) if speaks else None
        proven = proofs(self.proofs.get(uid, {}), holding, told, self.policy.soak, now)
        self.proofs[uid] = proven
        left, gone = released(
            self.policy, holding, told, proven, lambda place, cause: self._is_removed(uid, place, cause), now
        )
        freed += [(uid, one) for one in gone]
        for device, record in left.devices.items():
            if self.roster.is_gone(device):
                freed += [(uid, Freed(cause, "gone")) for cause in record.causes]
                left = left.put(device, Record())
                if record.charge is not None:
                    left = given_back(left, record.charge, self.policy.soak, now.wall)
        return left

    def _rests(self, uid: str, now: Instant) -> bool:
        """Whether a node that is as it is to be is just as it was when that was found, and remembers nothing
        that is to be forgotten.
        """
        found = self._resting.get(uid)
        if found is None:
            return False
        # Asked of every node that anything is remembered of, for each plan.
        for before, after in zip(found, self._about(uid), strict=True):
            if before is not after:
                return False
        holding, forget = self.roster.holding(uid), self.policy.soak.forget
        return holding.marked or any(now.wall - one.ended < forget for one in holding.node.past)

    def _lay_down(self, uid: str) -> None:
        """A node is as it is to be: it rests, unless a soak will change that."""
        if not self.proofs.get(uid):
            self._resting[uid] = self._about(uid)
        else:
            self._resting.pop(uid, None)

    def _about(self, uid: str) -> tuple[object, ...]:
        """All that decides what a node is to hold, but for time."""
        roster = self.roster
        return (
            roster.nodes.get(uid),
            roster.holding(uid),
            roster.seats.get(uid),
            self.heard.get(uid),
            uid in self.silence.silent,
            self.policy,
        )

    def _is_removed(self, uid: str, place: Device | None, cause: Cause) -> bool:
        """Whether a person took a mark away by hand."""
        node = self.roster.nodes.get(uid)
        if node is None or place is not None or not self.policy.marks.taint or self.roster.is_pending(uid):
            return False
        return self.roster.is_taken(uid, cause.mark.key)

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
            what = desired(seat, node, seen, holding, self.policy.marks)
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
                self._lay_down(uid)
        incidents, events = self._told(holdings, outcomes, now)
        return Plan(
            tuple(nodes),
            tuple(made),
            tuple(dict.fromkeys(gone)),
            tuple(incidents),
            tuple(events),
            tuple(freed),
        )

    def _told(
        self, holdings: Mapping[str, Holding], outcomes: list[Outcome], now: Instant
    ) -> tuple[list[Incident], list[Event]]:
        """Incidents that have changed, and what is told of it."""
        of: dict[str, list[Outcome]] = {}
        for outcome in outcomes:
            of.setdefault(outcome.want.uid, []).append(outcome)
        changed: list[Incident] = []
        events: list[Event] = []
        touched = self._dirty | of.keys() | holdings.keys() | self.outcomes.keys()
        self._dirty = set()
        self.outcomes = {uid: tuple(found) for uid, found in of.items()}
        for uid in touched:
            seat, told = self.roster.seats.get(uid), self.heard.get(uid)
            if seat is None:
                changed += self._orphaned(uid, now.wall)
                continue
            if (told is None or not told.findings) and uid not in holdings and uid not in self.incidents:
                continue
            story = Story(
                seat, told, self.outcomes.get(uid, ()), holdings.get(uid, Holding()), self.proofs.get(uid, {})
            )
            if story == self._stories.get(uid):
                continue
            self._stories[uid] = story
            before = self.incidents.get(uid, {})
            after = incidents_of(story, before, self.policy, now)
            for name, one in after.items():
                if one is not before.get(name):
                    changed.append(one)
                    events += filter(None, (event_of(before.get(name), one),))
            if after:
                self.incidents[uid] = after
        return changed, events

    def _orphaned(self, uid: str, now: float) -> list[Incident]:
        """The incidents of a Node that is no more, which are over with it."""
        if uid in self.roster.nodes:
            return []
        told = self.incidents.get(uid, {})
        over = [resolved(one, now, "its Node is gone") for one in told.values() if one.is_open]
        told.update((one.name, one) for one in over)
        return over


def _is_remembered(one: Incident, now: float) -> bool:
    return one.is_open or now - one.resolved < _REMEMBERED
