"""Everything of one node, told; and every node in short. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Set

from nodeguard.fleet.admission import Outcome
from nodeguard.fleet.heard import Heard
from nodeguard.fleet.holding import Holding
from nodeguard.fleet.planner import Planner
from nodeguard.fleet.seat import DOMAIN, Seat
from nodeguard.fleet.want import no_request
from nodeguard.fleet_api.ages import age
from nodeguard.fleet_api.forms import VERSION, LedgerTold
from nodeguard.fleet_api.health import UNKNOWN, known_health, reported_health
from nodeguard.fleet_api.incidents import line, listed
from nodeguard.fleet_api.lemons import lemons
from nodeguard.fleet_api.marks import marks
from nodeguard.fleet_api.node_forms import (
    DEGRADED,
    ChargeTold,
    FindingTold,
    NodeLine,
    NodeList,
    NodePage,
    UnreadTold,
    WantTold,
)
from nodeguard.fleet_api.refused import refused_messages
from nodeguard.fleet_api.service import Service
from nodeguard.model.finding import Knowledge
from nodeguard.model.incident import State
from nodeguard.model.instant import Instant, rfc3339
from nodeguard.model.mark import Mark
from nodeguard.wire.report import Inventory


def node(planner: Planner, service: Service, name: str, now: Instant) -> NodePage | None:
    """Everything of the node of a name; None where there is none."""
    roster = planner.roster
    uid = roster.uid(name)
    seat, one = roster.seats.get(uid), planner.heard.get(uid)
    if not uid:
        return None
    outcomes, holding = planner.outcomes.get(uid, ()), roster.holding(uid)
    inventory = one.inventory if one else Inventory()
    last, silent = planner.last.get(uid), planner.silence_at(now).silent
    health, reported = known_health(planner, uid, silent), reported_health(one)
    refusal = next((each for each in service.refused if each.node == name), None)
    return NodePage(
        version=VERSION,
        at=rfc3339(now.wall),
        node=name,
        uid=uid,
        health=health.value if health else UNKNOWN,
        reported=reported.value if reported else "",
        knowledge=one.knowledge if one else Knowledge.UNKNOWN,
        known=health is not None,
        heard=rfc3339(now.wall_of(last)) if last is not None else "",
        heard_age=round(max(0.0, now.mono - last), 1) if last is not None else None,
        silent=last is None or uid in silent,
        boot_id=one.boot_id if one else "",
        agent=one.agent if one else "",
        catalogue=one.catalogue if one else "",
        driver=inventory.driver,
        platform=inventory.platform,
        gpus=roster.nodes[uid].gpus,
        pool=seat.pool if seat else "",
        domains=tuple(one.removeprefix(DOMAIN) for one in seat.domains) if seat else (),
        out=seat.out if seat else False,
        cordoned=holding.node.cordoned,
        hold=seat.hold if seat else "",
        maintenance=seat.maintenance if seat else "",
        marks=marks(planner, uid, now),
        findings=tuple(_findings(one, outcomes, now)) if one else (),
        withheld=tuple(_wants(outcomes, State.WITHHELD, now)),
        would=tuple(_wants(outcomes, State.DRY_RUN, now)),
        charges=tuple(_charges(holding, now)),
        ledgers=tuple(_ledgers(planner, uid)),
        unread=tuple(UnreadTold(each.source, each.what, each.why, each.slots) for each in one.unread)
        if one
        else (),
        strange=tuple(f"{taint.key}={taint.value}" for taint in seat.strange) if seat else (),
        incidents=(
            *listed(planner, service, now, frozenset(State), name).incidents,
            *(line(planner, each, service, now) for each in planner.parents(uid, now)),
        ),
        lemons=lemons(planner, now, name),
        pending=tuple(_wants(outcomes, State.PENDING, now)),
        advised=planner.granted == State.ADVISED,
        refused=refused_messages(refusal, now) if refusal is not None else None,
        left_out=len(planner.incidents_left_out.get(uid, ())),
    )


def nodes(planner: Planner, now: Instant) -> NodeList:
    """Every node of the fleet, by name."""
    found = sorted(planner.roster.seats.values(), key=lambda seat: seat.name)
    marked, silent = frozenset(planner.roster.remembered()), planner.silence_at(now).silent
    lines = (
        _line(planner, seat, silent, _carried(planner, seat.uid) if seat.uid in marked else ())
        for seat in found
    )
    return NodeList(VERSION, rfc3339(now.wall), tuple(lines))


def _line(planner: Planner, seat: Seat, silent: Set[str], marks: tuple[str, ...]) -> NodeLine:
    health = known_health(planner, seat.uid, silent)
    outcomes = planner.outcomes.get(seat.uid, ())
    return NodeLine(
        node=seat.name,
        health=health.value if health else UNKNOWN,
        silent=seat.uid in silent,
        marks=marks,
        withheld=sum(1 for one in outcomes if one.state == State.WITHHELD),
        would=sum(1 for one in outcomes if one.state == State.DRY_RUN),
        hold=bool(seat.hold),
        maintenance=bool(seat.maintenance),
        pending=sum(1 for one in outcomes if one.state == State.PENDING),
    )


def _carried(planner: Planner, uid: str) -> tuple[str, ...]:
    """The marks that a node and its devices carry, worst first."""
    holding = planner.roster.observed(uid)
    found = {cause.mark for place in holding.places for cause in holding.of(place).causes}
    degraded = (DEGRADED,) if holding.node.degraded else ()
    return (*(mark for mark in Mark if mark in found), *degraded)


def _findings(one: Heard, outcomes: tuple[Outcome, ...], now: Instant) -> Iterator[FindingTold]:
    became = {(each.want.check, each.want.target): each for each in outcomes}
    for active, began in zip(one.findings, one.began, strict=True):
        outcome = became.get((active.check, active.target))
        yield FindingTold(
            check=active.check,
            target=active.target,
            slots=active.slots,
            part=active.part,
            health=active.health,
            knowledge=active.knowledge,
            action=active.action,
            since=rfc3339(began),
            age=age(now, began),
            message=active.message,
            note=active.note,
            evidence=tuple(f"{seen.source}: {seen.what}" for seen in active.evidence),
            state=outcome.state if outcome else None,
            why=outcome.why if outcome else no_request(one, active, began) or "not planned for yet",
            until=rfc3339(outcome.until) if outcome and outcome.until else "",
            left=_left(outcome, now) if outcome else 0.0,
        )


def _wants(outcomes: tuple[Outcome, ...], state: State, now: Instant) -> Iterator[WantTold]:
    for one in outcomes:
        if one.state == state:
            want = one.want
            yield WantTold(
                mark=want.mark,
                check=want.check,
                target=want.target,
                device=want.device.name if want.device else "",
                since=rfc3339(want.since),
                age=age(now, want.since),
                why=one.why,
                until=rfc3339(one.until) if one.until else "",
                left=_left(one, now),
            )


def _left(one: Outcome, now: Instant) -> float:
    """Return the seconds to the end of a grace period; 0 where none runs."""
    return round(max(0.0, one.until - now.wall), 1)


def _charges(holding: Holding, now: Instant) -> Iterator[ChargeTold]:
    for place in holding.places:
        charge = holding.of(place).charge
        if charge is not None:
            device = place.name if place else ""
            yield ChargeTold(charge.check, device, rfc3339(charge.at), age(now, charge.at))
    for past in holding.node.past:
        ended = rfc3339(past.ended)
        yield ChargeTold(past.check, "", rfc3339(past.at), age(now, past.at), ended, past.times)


def _ledgers(planner: Planner, uid: str) -> Iterator[LedgerTold]:
    """Those of where the node sits, and of what it is charged with."""
    seat, ledgers = planner.roster.seats.get(uid), planner.roster.ledgers
    if seat is None:
        return
    for told in ledgers.told_of(seat):
        yield LedgerTold(*told)
    holding = planner.roster.holding(uid)
    charges = [charge for place in holding.places if (charge := holding.of(place).charge) is not None]
    wanted = {f"check/{charge.check}" for charge in charges}
    if any(cause.mark == Mark.SUSPECT for cause in holding.node.causes):
        wanted.add("suspect")
    yield from (LedgerTold(*told) for told in ledgers.told() if told[0] in wanted)
