"""The fleet in short. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from nodeguard.fleet.planner import Planner
from nodeguard.fleet.seat import FLEET
from nodeguard.fleet.told.domain import blamed
from nodeguard.fleet.told.forms import (
    VERSION,
    Agents,
    Count,
    LedgerTold,
    LeftOut,
    Marked,
    Nodes,
    PolicyTold,
    Reason,
    Replica,
    Status,
)
from nodeguard.fleet.told.health import known_health
from nodeguard.fleet.told.incidents import every, outstanding
from nodeguard.fleet.told.lemons import lemons
from nodeguard.fleet.told.node_forms import DEGRADED
from nodeguard.fleet.told.refused import refused_messages
from nodeguard.fleet.told.service import Service
from nodeguard.fleet.told.views import held, views
from nodeguard.model.finding import Health
from nodeguard.model.incident import State
from nodeguard.model.instant import Instant, rfc3339
from nodeguard.model.mark import Mark

_WORST = 5
_LEDGERS = 6
_REASONS = 3
_REFUSED = 3


def status(planner: Planner, service: Service, now: Instant) -> Status:
    """The fleet in short, at a moment."""
    incidents = list(every(planner))
    states = Counter(one.state for one in incidents)
    ledgers, repeats = _ledgers(planner), lemons(planner, now)
    reasons = Counter(
        one.why for found in planner.outcomes.values() for one in found if one.state == State.WITHHELD
    )
    return Status(
        version=VERSION,
        at=rfc3339(now.wall),
        replica=_replica(service, now),
        policy=PolicyTold(
            service.policy_file, service.policy_error, planner.policy.mode.value, len(planner.policy.modes)
        ),
        agents=_agents(planner),
        nodes=_nodes(planner),
        paused=planner.paused or ("paused by the policy" if planner.policy.pause else ""),
        frozen=planner.silence.frozen,
        marked=_marked(planner),
        withheld=_count(planner, State.WITHHELD),
        reasons=tuple(Reason(why, many) for why, many in reasons.most_common(_REASONS)),
        would=_count(planner, State.OBSERVED),
        ledgers=tuple(ledgers[:_LEDGERS]),
        ledgers_more=max(0, len(ledgers) - _LEDGERS),
        incidents={state: states[state] for state in State},
        worst=outstanding(incidents, service, now, _WORST),
        views=views(planner),
        domains=dict(Counter(one.state for one in planner.covers.values())),
        blamed=blamed(planner, now, _WORST),
        held=held(planner, now),
        lemons=repeats[:_WORST],
        lemons_more=max(0, len(repeats) - _WORST),
        refused=tuple(refused_messages(one, now) for one in service.refused[:_REFUSED]),
        refused_more=max(0, len(service.refused) - _REFUSED),
        shortage=service.shortage,
        left_out=_left_out(planner),
    )


def _replica(service: Service, now: Instant) -> Replica:
    up = max(0.0, now.mono - service.started)
    return Replica(
        leader=service.leader,
        leads=service.leads,
        acts=service.leads and not service.waits,
        waiting=service.waits if service.leads else f"{service.leader or 'nobody yet'} leads",
        since=rfc3339(now.wall - up),
        age=round(up, 1),
        plan_age=None if service.plan_age is None else round(service.plan_age, 1),
        nodeguard=service.version,
    )


def _agents(planner: Planner) -> Agents:
    silent = planner.silence.silent & planner.roster.seats.keys()
    spoken = planner.last.keys() & planner.roster.seats.keys()
    return Agents(len(planner.roster.seats), len(spoken), len(silent), len(silent & spoken))


def _nodes(planner: Planner) -> Nodes:
    seats = planner.roster.seats
    found = Counter(known_health(planner, uid) for uid in seats)
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
    told = {name: LedgerTold(name, used, most) for name, used, most in planner.roster.ledgers.told()}
    seat = next(iter(planner.roster.seats.values()), None)
    if seat is not None:
        told.setdefault(
            FLEET, *(LedgerTold(*one) for one in planner.roster.ledgers.told_of(seat) if one[0] == FLEET)
        )
    yield from (one for one in told.values() if one.name == FLEET or one.used >= one.most / 2)
