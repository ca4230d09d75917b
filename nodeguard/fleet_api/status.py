"""The fleet in short. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from nodeguard.fleet.admission import Outcome
from nodeguard.fleet.modes import enforces_nothing
from nodeguard.fleet.planner import Planner
from nodeguard.fleet.restraints import pause_reason
from nodeguard.fleet.seat import FLEET
from nodeguard.fleet.silence import Silence
from nodeguard.fleet_api.domain import blamed
from nodeguard.fleet_api.forms import (
    VERSION,
    Agents,
    Count,
    DryRunTold,
    LedgerTold,
    LeftOut,
    Marked,
    Nodes,
    PolicyTold,
    Reason,
    Replica,
    Status,
)
from nodeguard.fleet_api.health import known_health
from nodeguard.fleet_api.incidents import every, outstanding
from nodeguard.fleet_api.lemons import lemons
from nodeguard.fleet_api.node_forms import DEGRADED
from nodeguard.fleet_api.refused import refused_messages
from nodeguard.fleet_api.service import Service
from nodeguard.fleet_api.views import held, views
from nodeguard.model.finding import Health
from nodeguard.model.incident import State
from nodeguard.model.instant import Instant, rfc3339
from nodeguard.model.mark import Mark
from nodeguard.model.node import Device
from nodeguard.model.policy import Mode, Policy

NO_LEADER = "no aggregator leads yet"

_WORST = 5
_LEDGERS = 6
_REASONS = 3
_REFUSED = 3


def status(planner: Planner, service: Service, now: Instant) -> Status:
    """The fleet in short, at a moment."""
    # All counts are of one moment: right after a start many reports come between two plans.
    silence = planner.silence_at(now)
    states = Counter(one.state for one in every(planner))
    ledgers, repeats = _ledgers(planner), lemons(planner, now)
    outcomes = [one for found in planner.outcomes.values() for one in found]
    pending = [one.until for one in outcomes if one.state == State.PENDING]
    return Status(
        version=VERSION,
        at=rfc3339(now.wall),
        replica=_replica(service, now),
        policy=_policy(planner.policy, service),
        agents=_agents(planner, silence),
        nodes=_nodes(planner, silence),
        paused=pause_reason(planner.paused, planner.policy),
        frozen=silence.frozen,
        marked=_marked(planner),
        withheld=_count(planner, State.WITHHELD),
        reasons=_most(one.why for one in outcomes if one.state == State.WITHHELD),
        would=_count(planner, State.DRY_RUN),
        ledgers=tuple(ledgers[:_LEDGERS]),
        ledgers_more=max(0, len(ledgers) - _LEDGERS),
        incidents={state: states[state] for state in State},
        worst=outstanding(planner, service, now, _WORST),
        views=views(planner),
        domains=dict(Counter(one.state for one in planner.covers.values())),
        blamed=blamed(planner, now, _WORST),
        held=held(planner, now),
        lemons=repeats[:_WORST],
        lemons_more=max(0, len(repeats) - _WORST),
        pending=_count(planner, State.PENDING),
        pending_left=round(max(0.0, min(pending) - now.wall), 1) if pending else 0.0,
        dry_run=_dry_run(one for one in outcomes if one.state == State.DRY_RUN),
        refused=tuple(refused_messages(one, now) for one in service.refused[:_REFUSED]),
        refused_more=max(0, len(service.refused) - _REFUSED),
        shortage=service.shortage,
        left_out=_left_out(planner),
    )


def _most(reasons: Iterable[str]) -> tuple[Reason, ...]:
    """Return the most frequent reasons."""
    return tuple(Reason(why, many) for why, many in Counter(reasons).most_common(_REASONS))


def _policy(policy: Policy, service: Service) -> PolicyTold:
    def of(mode: Mode) -> tuple[str, ...]:
        return tuple(check for rule in policy.modes if rule.mode == mode for check in rule.checks)

    return PolicyTold(
        file=service.policy_file,
        error=service.policy_error,
        mode=policy.mode.value,
        rules=len(policy.modes),
        enforced=of(Mode.ENFORCE),
        observed=of(Mode.OBSERVE),
        observes=enforces_nothing(policy),
    )


def _dry_run(outcomes: Iterable[Outcome]) -> DryRunTold:
    """Return what the checks that are not enforced would mark: each node and GPU once, by its worst mark."""
    worst: dict[tuple[str, Device | None], Outcome] = {}
    for one in sorted(outcomes, key=lambda one: (one.want.mark != Mark.QUARANTINE, one.why != "")):
        worst.setdefault((one.want.uid, one.want.device), one)
    found = list(worst.values())
    whole = [one for one in found if one.want.device is None]
    over = [one.refusal.limit_words() for one in found if one.refusal is not None]
    others = [one.why for one in found if one.why and one.refusal is None]
    return DryRunTold(
        nodes=sum(one.want.mark == Mark.QUARANTINE for one in whole),
        devices=len(found) - len(whole),
        suspect=sum(one.want.mark == Mark.SUSPECT for one in whole),
        within=sum(not one.why for one in found),
        over=len(over),
        limits=_most(over),
        other=len(others),
        reasons=_most(others),
    )


def _replica(service: Service, now: Instant) -> Replica:
    up = max(0.0, now.mono - service.started)
    standby = f"{service.leader} leads" if service.leader else NO_LEADER
    return Replica(
        leader=service.leader,
        leads=service.leads,
        acts=service.leads and not service.waits,
        waiting=service.waits if service.leads else standby,
        since=rfc3339(now.wall - up),
        age=round(up, 1),
        plan_age=None if service.plan_age is None else round(service.plan_age, 1),
        nodeguard=service.version,
    )


def _agents(planner: Planner, silence: Silence) -> Agents:
    stale = sum(1 for uid in silence.silent if uid in planner.last)
    return Agents(silence.expected, silence.heard, len(silence.silent), stale)


def _nodes(planner: Planner, silence: Silence) -> Nodes:
    seats = planner.roster.seats
    found = Counter(known_health(planner, uid, silence.silent) for uid in seats)
    return Nodes(
        ok=found[Health.OK],
        warning=found[Health.WARNING],
        suspect=found[Health.SUSPECT],
        fatal=found[Health.FATAL],
        unknown=found[None],
        blind=sum(1 for uid in seats if (one := planner.heard.get(uid)) is not None and one.unread),
        held=sum(1 for seat in seats.values() if seat.hold),
        maintenance=sum(1 for seat in seats.values() if seat.maintenance),
        out=sum(1 for seat in seats.values() if seat.out),
    )


def _marked(planner: Planner) -> dict[str, Marked]:
    nodes: Counter[str] = Counter()
    devices: Counter[Mark] = Counter()
    for uid in planner.roster.remembered():
        holding = planner.roster.observed(uid)
        marks = {cause.mark for cause in holding.node.causes}
        worst = next((mark for mark in Mark if mark in marks), DEGRADED if holding.node.degraded else None)
        nodes.update([worst] if worst else [])
        devices[Mark.QUARANTINE] += sum(1 for record in holding.devices.values() if record.causes)
    told = {mark.value: Marked(nodes[mark], devices[mark]) for mark in Mark}
    return {**told, DEGRADED: Marked(nodes[DEGRADED])}


def _left_out(planner: Planner) -> LeftOut:
    counts = Counter({uid: len(names) for uid, names in planner.incidents_left_out.items()})
    nodes = planner.roster.nodes
    most = tuple(nodes[uid].name for uid, _ in counts.most_common(_WORST) if uid in nodes)
    return LeftOut(counts.total(), len(counts), most)


def _count(planner: Planner, state: State) -> Count:
    many = [sum(1 for one in found if one.state == state) for found in planner.outcomes.values()]
    return Count(sum(many), sum(1 for one in many if one))


def _ledgers(planner: Planner) -> list[LedgerTold]:
    """The fleet's first, then those that are half full at least, fullest first."""
    return sorted(_notable(planner), key=lambda one: (one.name != FLEET, -one.used / one.most, one.name))


def _notable(planner: Planner) -> Iterator[LedgerTold]:
    told = {one[0]: LedgerTold(*one) for one in planner.roster.ledgers.told()}
    seat = next(iter(planner.roster.seats.values()), None)
    if seat is not None:
        told.setdefault(
            FLEET, *(LedgerTold(*one) for one in planner.roster.ledgers.told_of(seat) if one[0] == FLEET)
        )
    yield from (one for one in told.values() if one.name == FLEET or one.used >= one.most / 2)
