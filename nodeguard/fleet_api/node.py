"""Everything of one node, told; and every node in short. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Set

from nodeguard.fleet.decide.admission import MarkDecision
from nodeguard.fleet.decide.mark_requests import no_request_reason
from nodeguard.fleet.planner import Planner
from nodeguard.fleet.state.latest_report import LatestReport
from nodeguard.fleet.state.node_marks import NodeMarks
from nodeguard.fleet.state.node_placement import DOMAIN, NodePlacement
from nodeguard.fleet.state.rejected_reports import RejectedReport
from nodeguard.fleet_api.incident import list_incidents, summarize_incident
from nodeguard.fleet_api.marks import marks_of_node
from nodeguard.fleet_api.schema.node import (
    DEGRADED,
    ChargeView,
    FindingView,
    MarkRequestView,
    NodeList,
    NodeSummary,
    NodeView,
    UnreadableView,
)
from nodeguard.fleet_api.schema.status import VERSION, BudgetView, RefusedMessages, RepeatOffenderView
from nodeguard.fleet_api.service_state import ServiceState, age
from nodeguard.model.finding import DataStatus, Health
from nodeguard.model.incident import IncidentState
from nodeguard.model.instant import Instant, rfc3339
from nodeguard.model.mark import Mark
from nodeguard.wire.report import Inventory


def refused_messages(refusal: RejectedReport, now: Instant) -> RefusedMessages:
    """Return the refused messages of a node as responses have them."""
    return RefusedMessages(
        node=refusal.node,
        reason=refusal.reason,
        message=refusal.message,
        count=refusal.count,
        latest=rfc3339(now.wall_of(refusal.last)),
        age=round(max(0.0, now.mono - refusal.last), 1),
    )


def repeat_offenders(planner: Planner, now: Instant, node: str = "") -> tuple[RepeatOffenderView, ...]:
    """The lemons, the worst first; of one node, where it is named."""
    return tuple(
        RepeatOffenderView(
            component=one.part,
            node=one.node,
            target=one.slot,
            faults=one.faults,
            expected=round(one.expected, 4),
            check=one.check,
            latest=rfc3339(one.at),
            latest_age=age(now, one.at),
            since=rfc3339(one.since),
            age=age(now, one.since),
        )
        for one in planner.component_faults.repeat_offenders(now)
        if not node or one.node == node
    )


# The health of a node of which none is known.
UNKNOWN = DataStatus.UNKNOWN.value


def known_health(planner: Planner, uid: str, silent: Set[str]) -> Health | None:
    """Return the health of a node; None where no report comes from it, or nothing could be judged there.
    silent: uids of nodes whose agents do not report.
    """
    return None if uid in silent else reported_health(planner.reports.get(uid))


def reported_health(one: LatestReport | None) -> Health | None:
    """Return the health that a report has; None where there is none, or nothing could be judged."""
    if one is None or (one.health == Health.OK and one.knowledge == DataStatus.UNKNOWN and not one.proven):
        return None
    return one.health


def describe_node(planner: Planner, service: ServiceState, name: str, now: Instant) -> NodeView | None:
    """Everything of the node of a name; None where there is none."""
    roster = planner.state
    uid = roster.uid(name)
    seat, one = roster.placements.get(uid), planner.reports.get(uid)
    if not uid:
        return None
    outcomes, holding = planner.decisions.get(uid, ()), roster.marks(uid)
    inventory = one.inventory if one else Inventory()
    last, silent = planner.last_reports.get(uid), planner.stale_agents_at(now).stale
    health, reported = known_health(planner, uid, silent), reported_health(one)
    refusal = next((each for each in service.refused if each.node == name), None)
    return NodeView(
        version=VERSION,
        at=rfc3339(now.wall),
        node=name,
        uid=uid,
        health=health.value if health else UNKNOWN,
        reported=reported.value if reported else "",
        knowledge=one.knowledge if one else DataStatus.UNKNOWN,
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
        out=seat.cordoned_by_user if seat else False,
        cordoned=holding.node.cordoned,
        hold=seat.hold if seat else "",
        maintenance=seat.maintenance if seat else "",
        marks=marks_of_node(planner, uid, now),
        findings=tuple(_findings(one, outcomes, now)) if one else (),
        withheld=tuple(_wants(outcomes, IncidentState.WITHHELD, now)),
        would=tuple(_wants(outcomes, IncidentState.DRY_RUN, now)),
        charges=tuple(_charges(holding, now)),
        ledgers=tuple(_ledgers(planner, uid)),
        unread=tuple(
            UnreadableView(each.source, each.subject, each.reason, each.targets) for each in one.unread
        )
        if one
        else (),
        strange=tuple(f"{taint.key}={taint.value}" for taint in seat.unknown_taints) if seat else (),
        incidents=(
            *list_incidents(planner, service, now, frozenset(IncidentState), name).incidents,
            *(summarize_incident(planner, each, service, now) for each in planner.parent_incidents(uid, now)),
        ),
        lemons=repeat_offenders(planner, now, name),
        pending=tuple(_wants(outcomes, IncidentState.PENDING, now)),
        advised=planner.granted == IncidentState.ADVISED,
        refused=refused_messages(refusal, now) if refusal is not None else None,
        left_out=len(planner.incidents_left_out.get(uid, ())),
    )


def list_nodes(planner: Planner, now: Instant) -> NodeList:
    """Every node of the fleet, by name."""
    found = sorted(planner.state.placements.values(), key=lambda seat: seat.name)
    marked, silent = frozenset(planner.state.marked_nodes()), planner.stale_agents_at(now).stale
    lines = (
        _line(planner, seat, silent, _carried(planner, seat.uid) if seat.uid in marked else ())
        for seat in found
    )
    return NodeList(VERSION, rfc3339(now.wall), tuple(lines))


def _line(planner: Planner, seat: NodePlacement, silent: Set[str], marks: tuple[str, ...]) -> NodeSummary:
    health = known_health(planner, seat.uid, silent)
    outcomes = planner.decisions.get(seat.uid, ())
    return NodeSummary(
        node=seat.name,
        health=health.value if health else UNKNOWN,
        silent=seat.uid in silent,
        marks=marks,
        withheld=sum(1 for one in outcomes if one.state == IncidentState.WITHHELD),
        would=sum(1 for one in outcomes if one.state == IncidentState.DRY_RUN),
        hold=bool(seat.hold),
        maintenance=bool(seat.maintenance),
        pending=sum(1 for one in outcomes if one.state == IncidentState.PENDING),
    )


def _carried(planner: Planner, uid: str) -> tuple[str, ...]:
    """The marks that a node and its devices carry, worst first."""
    holding = planner.state.observed_marks(uid)
    found = {cause.mark for place in holding.carriers for cause in holding.record_of(place).causes}
    degraded = (DEGRADED,) if holding.node.degraded else ()
    return (*(mark for mark in Mark if mark in found), *degraded)


def _findings(one: LatestReport, outcomes: tuple[MarkDecision, ...], now: Instant) -> Iterator[FindingView]:
    became = {(each.request.check, each.request.target): each for each in outcomes}
    for active, began in zip(one.findings, one.began, strict=True):
        outcome = became.get((active.check, active.target))
        yield FindingView(
            check=active.check,
            target=active.target,
            slots=active.targets,
            part=active.component,
            health=active.health,
            knowledge=active.data_status,
            action=active.action,
            since=rfc3339(began),
            age=age(now, began),
            message=active.message,
            note=active.note,
            evidence=tuple(f"{seen.source}: {seen.message}" for seen in active.evidence),
            state=outcome.state if outcome else None,
            why=outcome.reason if outcome else no_request_reason(one, active, began) or "not planned for yet",
            until=rfc3339(outcome.until) if outcome and outcome.until else "",
            left=_left(outcome, now) if outcome else 0.0,
        )


def _wants(
    outcomes: tuple[MarkDecision, ...], state: IncidentState, now: Instant
) -> Iterator[MarkRequestView]:
    for one in outcomes:
        if one.state == state:
            want = one.request
            yield MarkRequestView(
                mark=want.mark,
                check=want.check,
                target=want.target,
                device=want.device.name if want.device else "",
                since=rfc3339(want.since),
                age=age(now, want.since),
                why=one.reason,
                until=rfc3339(one.until) if one.until else "",
                left=_left(one, now),
            )


def _left(one: MarkDecision, now: Instant) -> float:
    """Return the seconds to the end of a grace period; 0 where none runs."""
    return round(max(0.0, one.until - now.wall), 1)


def _charges(holding: NodeMarks, now: Instant) -> Iterator[ChargeView]:
    for place in holding.carriers:
        charge = holding.record_of(place).charge
        if charge is not None:
            device = place.name if place else ""
            yield ChargeView(charge.check, device, rfc3339(charge.at), age(now, charge.at))
    for past in holding.node.past_charges:
        ended = rfc3339(past.ended)
        yield ChargeView(past.check, "", rfc3339(past.at), age(now, past.at), ended, past.occurrences)


def _ledgers(planner: Planner, uid: str) -> Iterator[BudgetView]:
    """Those of where the node sits, and of what it is charged with."""
    seat, ledgers = planner.state.placements.get(uid), planner.state.budgets
    if seat is None:
        return
    for told in ledgers.rows_of_node(seat):
        yield BudgetView(*told)
    holding = planner.state.marks(uid)
    charges = [
        charge for place in holding.carriers if (charge := holding.record_of(place).charge) is not None
    ]
    wanted = {f"check/{charge.check}" for charge in charges}
    if any(cause.mark == Mark.SUSPECT for cause in holding.node.causes):
        wanted.add("suspect")
    yield from (BudgetView(*told) for told in ledgers.rows() if told[0] in wanted)
