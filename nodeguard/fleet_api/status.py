"""The fleet in short. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from nodeguard.fleet.decide.admission import MarkDecision
from nodeguard.fleet.decide.restraints import pause_reason
from nodeguard.fleet.planner import Planner
from nodeguard.fleet.policy_rules import observes_only
from nodeguard.fleet.state.liveness import StaleAgents
from nodeguard.fleet.state.node_placement import FLEET
from nodeguard.fleet_api.domain import degraded_domains, list_topologies, suppressed_checks
from nodeguard.fleet_api.incident import all_incidents, worst_incidents
from nodeguard.fleet_api.node import known_health, refused_messages, repeat_offenders
from nodeguard.fleet_api.schema.node import DEGRADED
from nodeguard.fleet_api.schema.status import (
    VERSION,
    AgentCounts,
    BudgetView,
    DryRunView,
    FleetStatus,
    MarkCount,
    MarkedCounts,
    NodeCounts,
    OmittedIncidents,
    PolicyView,
    ReasonCount,
    ReplicaView,
)
from nodeguard.fleet_api.service_state import ServiceState
from nodeguard.model.finding import Health
from nodeguard.model.incident import IncidentState
from nodeguard.model.instant import Instant, rfc3339
from nodeguard.model.mark import Mark
from nodeguard.model.node import Device
from nodeguard.model.policy import Mode, Policy

NO_LEADER = "no aggregator leads yet"

_WORST = 5
_LEDGERS = 6
_REASONS = 3
_REFUSED = 3


def fleet_status(planner: Planner, service: ServiceState, now: Instant) -> FleetStatus:
    """The fleet in short, at a moment."""
    # All counts are of one moment: right after a start many reports come between two plans.
    silence = planner.stale_agents_at(now)
    states = Counter(one.state for one in all_incidents(planner))
    ledgers, repeats = _ledgers(planner), repeat_offenders(planner, now)
    outcomes = [one for found in planner.decisions.values() for one in found]
    pending = [one.until for one in outcomes if one.state == IncidentState.PENDING]
    return FleetStatus(
        version=VERSION,
        at=rfc3339(now.wall),
        replica=_replica(service, now),
        policy=_policy(planner.policy, service),
        agents=_agents(planner, silence),
        nodes=_nodes(planner, silence),
        paused=pause_reason(planner.paused, planner.policy),
        frozen=silence.frozen,
        marked=_marked(planner),
        withheld=_count(planner, IncidentState.WITHHELD),
        reasons=_most(one.reason for one in outcomes if one.state == IncidentState.WITHHELD),
        would_mark=_count(planner, IncidentState.DRY_RUN),
        budgets=tuple(ledgers[:_LEDGERS]),
        budgets_omitted=max(0, len(ledgers) - _LEDGERS),
        incidents={state: states[state] for state in IncidentState},
        worst=worst_incidents(planner, service, now, _WORST),
        topologies=list_topologies(planner),
        domains=dict(Counter(one.state for one in planner.domain_decisions.values())),
        degraded_domains=degraded_domains(planner, now, _WORST),
        suppressed_checks=suppressed_checks(planner, now),
        repeat_offenders=repeats[:_WORST],
        repeat_offenders_omitted=max(0, len(repeats) - _WORST),
        pending=_count(planner, IncidentState.PENDING),
        pending_seconds_left=round(max(0.0, min(pending) - now.wall), 1) if pending else 0.0,
        dry_run=_dry_run(one for one in outcomes if one.state == IncidentState.DRY_RUN),
        refused_messages=tuple(refused_messages(one, now) for one in service.refused[:_REFUSED]),
        refused_omitted=max(0, len(service.refused) - _REFUSED),
        connection_shortage=service.connection_shortage,
        incidents_omitted=_left_out(planner),
    )


def _most(reasons: Iterable[str]) -> tuple[ReasonCount, ...]:
    """Return the most frequent reasons."""
    return tuple(ReasonCount(why, many) for why, many in Counter(reasons).most_common(_REASONS))


def _policy(policy: Policy, service: ServiceState) -> PolicyView:
    def of(mode: Mode) -> tuple[str, ...]:
        return tuple(check for rule in policy.modes if rule.mode == mode for check in rule.checks)

    return PolicyView(
        file=service.policy_file,
        error=service.policy_error,
        mode=policy.mode.value,
        rules=len(policy.modes),
        enforced=of(Mode.ENFORCE),
        observed=of(Mode.OBSERVE),
        observe_only=observes_only(policy),
    )


def _dry_run(outcomes: Iterable[MarkDecision]) -> DryRunView:
    """Return what the checks that are not enforced would mark: each node and GPU once, by its worst mark."""
    worst: dict[tuple[str, Device | None], MarkDecision] = {}
    for one in sorted(outcomes, key=lambda one: (one.request.mark != Mark.QUARANTINE, one.reason != "")):
        worst.setdefault((one.request.uid, one.request.device), one)
    found = list(worst.values())
    whole = [one for one in found if one.request.device is None]
    over = [one.refusal.limit_message() for one in found if one.refusal is not None]
    others = [one.reason for one in found if one.reason and one.refusal is None]
    return DryRunView(
        nodes=sum(one.request.mark == Mark.QUARANTINE for one in whole),
        devices=len(found) - len(whole),
        suspect=sum(one.request.mark == Mark.SUSPECT for one in whole),
        within_budget=sum(not one.reason for one in found),
        over_budget=len(over),
        budget_limits=_most(over),
        otherwise_withheld=len(others),
        reasons=_most(others),
    )


def _replica(service: ServiceState, now: Instant) -> ReplicaView:
    up = max(0.0, now.mono - service.started)
    standby = f"{service.leader} leads" if service.leader else NO_LEADER
    return ReplicaView(
        leader=service.leader,
        is_leader=service.is_leader,
        is_active=service.is_leader and not service.inactive_reason,
        inactive_reason=service.inactive_reason if service.is_leader else standby,
        since=rfc3339(now.wall - up),
        age=round(up, 1),
        plan_age=None if service.plan_age is None else round(service.plan_age, 1),
        nodeguard_version=service.version,
    )


def _agents(planner: Planner, silence: StaleAgents) -> AgentCounts:
    stale = sum(1 for uid in silence.stale if uid in planner.last_reports)
    return AgentCounts(silence.expected, silence.reported, len(silence.stale), stale)


def _nodes(planner: Planner, silence: StaleAgents) -> NodeCounts:
    seats = planner.state.placements
    found = Counter(known_health(planner, uid, silence.stale) for uid in seats)
    return NodeCounts(
        ok=found[Health.OK],
        warning=found[Health.WARNING],
        suspect=found[Health.SUSPECT],
        fatal=found[Health.FATAL],
        unknown=found[None],
        partially_read=sum(
            1 for uid in seats if (one := planner.reports.get(uid)) is not None and one.unread
        ),
        on_hold=sum(1 for seat in seats.values() if seat.hold),
        maintenance=sum(1 for seat in seats.values() if seat.maintenance),
        cordoned_by_user=sum(1 for seat in seats.values() if seat.cordoned_by_user),
    )


def _marked(planner: Planner) -> dict[str, MarkedCounts]:
    nodes: Counter[str] = Counter()
    devices: Counter[Mark] = Counter()
    for uid in planner.state.marked_nodes():
        holding = planner.state.observed_marks(uid)
        marks = {cause.mark for cause in holding.node.causes}
        worst = next((mark for mark in Mark if mark in marks), DEGRADED if holding.node.degraded else None)
        nodes.update([worst] if worst else [])
        devices[Mark.QUARANTINE] += sum(1 for record in holding.devices.values() if record.causes)
    told = {mark.value: MarkedCounts(nodes[mark], devices[mark]) for mark in Mark}
    return {**told, DEGRADED: MarkedCounts(nodes[DEGRADED])}


def _left_out(planner: Planner) -> OmittedIncidents:
    counts = Counter({uid: len(names) for uid, names in planner.incidents_left_out.items()})
    nodes = planner.state.nodes
    most = tuple(nodes[uid].name for uid, _ in counts.most_common(_WORST) if uid in nodes)
    return OmittedIncidents(counts.total(), len(counts), most)


def _count(planner: Planner, state: IncidentState) -> MarkCount:
    many = [sum(1 for one in found if one.state == state) for found in planner.decisions.values()]
    return MarkCount(sum(many), sum(1 for one in many if one))


def _ledgers(planner: Planner) -> list[BudgetView]:
    """The fleet's first, then those that are half full at least, fullest first."""
    return sorted(_notable(planner), key=lambda one: (one.name != FLEET, -one.used / one.limit, one.name))


def _notable(planner: Planner) -> Iterator[BudgetView]:
    told = {one[0]: BudgetView(*one) for one in planner.state.budgets.rows()}
    seat = next(iter(planner.state.placements.values()), None)
    if seat is not None:
        told.setdefault(
            FLEET, *(BudgetView(*one) for one in planner.state.budgets.rows_of_node(seat) if one[0] == FLEET)
        )
    yield from (one for one in told.values() if one.name == FLEET or one.used >= one.limit / 2)
