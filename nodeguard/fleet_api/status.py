"""View of the fleet as a whole: health, marks, budgets, and the worst incidents. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from math import inf

from nodeguard.fleet.decide.admission import MarkDecision
from nodeguard.fleet.decide.restraints import pause_reason
from nodeguard.fleet.drains import failed_drains
from nodeguard.fleet.planner import Planner
from nodeguard.fleet.policy_rules import observes_only
from nodeguard.fleet.state.budget_usage import SUSPECT
from nodeguard.fleet.state.liveness import StaleAgents
from nodeguard.fleet.state.node_placement import FLEET
from nodeguard.fleet_api.action import action_view
from nodeguard.fleet_api.capacity import capacity
from nodeguard.fleet_api.domain import degraded_domains, list_topologies, suppressed_checks
from nodeguard.fleet_api.drain import drain_views
from nodeguard.fleet_api.incident import all_incidents, latest_end, worst_incidents
from nodeguard.fleet_api.job_outcomes import drained_jobs, job_outcomes
from nodeguard.fleet_api.node import injected_faults, known_health, refused_messages, repeat_offenders
from nodeguard.fleet_api.reasons import count_reasons, exhausted_budget, reason_kind
from nodeguard.fleet_api.schema.budget import BudgetList
from nodeguard.fleet_api.schema.capacity import MarkedCounts
from nodeguard.fleet_api.schema.incident_summary import OmittedIncidents
from nodeguard.fleet_api.schema.replica import (
    AgentCounts,
    ObstacleView,
    PolicyView,
    RefusedRequestView,
    ReplicaView,
)
from nodeguard.fleet_api.schema.status import (
    VERSION,
    BudgetView,
    DryRunView,
    FleetStatus,
    InjectedFaultView,
    MarkCount,
    NodeCounts,
)
from nodeguard.fleet_api.service_state import PARTIAL_OBSTACLES, ServiceState
from nodeguard.model.device import Device
from nodeguard.model.finding import Health
from nodeguard.model.incident import IncidentState
from nodeguard.model.instant import Instant, rfc3339
from nodeguard.model.mark import Mark, worst
from nodeguard.model.policy import Mode, Policy, check_patterns
from nodeguard.model.projection import project
from nodeguard.model.refused_request import RefusedRequest

_WORST = 5
_BUDGETS = 6
_REFUSED = 3
_DRAINS = 5
_JOBS = 5


def fleet_status(planner: Planner, service: ServiceState, now: Instant) -> FleetStatus:
    """Return the status of the fleet at one time."""
    # All counts are of one time: right after a start many reports arrive between two plans.
    stale_agents = planner.state.stale_agents(now)
    healths = {uid: known_health(planner, uid, stale_agents.stale) for uid in planner.state.placements}
    # A rehearsal is no evidence about the fleet or the policy: it is counted apart.
    states = Counter(incident.state for incident in all_incidents(planner) if not incident.injected)
    budgets, offenders = _budgets(planner), repeat_offenders(planner, now)
    injected = _injected_faults(planner)
    frozen_age, drains = _frozen_age(stale_agents, service, now), drain_views(service.drains, now)
    failed, jobs = failed_drains(planner, service.actions), drained_jobs(service)
    by_node = [_real(decisions) for decisions in planner.tracker.decisions.values()]
    decisions = [decision for node_decisions in by_node for decision in node_decisions]
    # A mark that is being written has no grace period left.
    pending = [decision.until for decision in decisions if decision.until]
    withheld = [decision for decision in decisions if decision.state == IncidentState.WITHHELD]
    reasons, other_reasons = count_reasons(withheld, reason_kind)
    refused = [decision for decision in withheld if decision.refusal is not None]
    full_budgets, other_full_budgets = count_reasons(refused, exhausted_budget)
    worst, worst_omitted = worst_incidents(planner, service, now, _WORST)
    return FleetStatus(
        version=VERSION,
        at=rfc3339(now.wall),
        obstacle=_obstacle(service, now),
        replica=_replica(service, now),
        policy=_policy(planner.policy, service),
        agents=_agents(planner, stale_agents),
        nodes=_nodes(planner, Counter(healths.values())),
        paused=pause_reason(planner.paused, planner.policy),
        frozen=stale_agents.frozen,
        marked=_marked(planner),
        withheld=_count(by_node, IncidentState.WITHHELD),
        reasons=reasons,
        other_reasons=other_reasons,
        full_budgets=full_budgets,
        other_full_budgets=other_full_budgets,
        would_mark=_count(by_node, IncidentState.DRY_RUN),
        budgets=tuple(budgets[:_BUDGETS]),
        budgets_omitted=max(0, len(budgets) - _BUDGETS),
        incidents={state: states[state] for state in IncidentState},
        worst=worst,
        worst_omitted=worst_omitted,
        topologies=list_topologies(planner),
        domains=dict(Counter(decision.state for decision in planner.domain_marks.decisions.values())),
        degraded_domains=degraded_domains(planner, now, _WORST),
        suppressed_checks=suppressed_checks(planner, now),
        repeat_offenders=offenders[:_WORST],
        repeat_offenders_omitted=max(0, len(offenders) - _WORST),
        pending=_count(
            [[item for item in items if not item.is_being_written] for items in by_node],
            IncidentState.PENDING,
        ),
        being_written=_count(
            [[item for item in items if item.is_being_written] for items in by_node],
            IncidentState.PENDING,
        ),
        pending_seconds_left=round(max(0.0, min(pending) - now.wall), 1) if pending else 0.0,
        dry_run=_dry_run(decision for decision in decisions if decision.state == IncidentState.DRY_RUN),
        refused_messages=tuple(refused_messages(refusal, now) for refusal in service.refused[:_REFUSED]),
        refused_omitted=max(0, len(service.refused) - _REFUSED),
        connection_shortage=service.connection_shortage,
        notification_problem=service.notification_problem,
        history_problem=service.history_problem,
        state_problem=service.state_problem,
        refused_requests=tuple(_refused_request(refused, now) for refused in service.refused_requests),
        incidents_omitted=_left_out(planner),
        injected_faults=injected[:_WORST],
        injected_faults_omitted=max(0, len(injected) - _WORST),
        injected_faults_accepted=sum(not fault.refusal for fault in injected),
        frozen_since=rfc3339(now.wall - frozen_age) if stale_agents.frozen else "",
        frozen_age=frozen_age,
        capacity=capacity(planner, healths),
        latest_end=latest_end(planner, service.decisions, now),
        drains=drains[:_DRAINS],
        drains_omitted=max(0, len(drains) - _DRAINS),
        failed_drains=tuple(action_view(action, now) for action in failed[:_DRAINS]),
        failed_drains_omitted=max(0, len(failed) - _DRAINS),
        drained_jobs=jobs[:_JOBS],
        drained_jobs_omitted=max(0, len(jobs) - _JOBS),
        job_outcomes=job_outcomes(jobs[:_JOBS], "", service, now, since=inf),
    )


def _injected_faults(planner: Planner) -> tuple[InjectedFaultView, ...]:
    """Return the injected faults of the fleet, the accepted ones first."""
    nodes = planner.state.nodes
    faults = [
        fault
        for uid, report in planner.reports.items()
        if report.injections and uid in nodes
        for fault in injected_faults(nodes[uid].name, report)
    ]
    return tuple(sorted(faults, key=lambda fault: (fault.refusal != "", fault.node)))


def _policy(policy: Policy, service: ServiceState) -> PolicyView:
    def of(mode: Mode) -> tuple[str, ...]:
        return tuple(check for rule in policy.modes if rule.mode == mode for check in check_patterns(rule))

    return PolicyView(
        file=service.policy_file,
        error=service.policy_error,
        mode=policy.mode.value,
        rules=len(policy.modes),
        enforced=of(Mode.ENFORCE),
        observed=of(Mode.OBSERVE),
        observe_only=observes_only(policy),
    )


def _dry_run(decisions: Iterable[MarkDecision]) -> DryRunView:
    """Return the marks that checks in observe mode would set: each node and GPU once, by its worst mark."""
    by_target: dict[tuple[str, Device | None], MarkDecision] = {}
    for decision in sorted(
        decisions, key=lambda decision: (decision.request.mark.rank, decision.reason != "")
    ):
        by_target.setdefault((decision.request.uid, decision.request.device), decision)
    marks = list(by_target.values())
    whole = [decision for decision in marks if decision.request.device is None]
    over = [decision for decision in marks if decision.refusal is not None]
    others = [decision for decision in marks if decision.reason and decision.refusal is None]
    limits, other_limits = count_reasons(over, exhausted_budget)
    reasons, other_reasons = count_reasons(others)
    return DryRunView(
        nodes=sum(decision.request.mark.kind.budget == FLEET for decision in whole),
        devices=len(marks) - len(whole),
        suspect=sum(decision.request.mark.kind.budget == SUSPECT for decision in whole),
        within_budget=sum(not decision.reason for decision in marks),
        over_budget=len(over),
        budget_limits=limits,
        otherwise_withheld=len(others),
        reasons=reasons,
        other_limits=other_limits,
        other_reasons=other_reasons,
    )


def _refused_request(refused: RefusedRequest, now: Instant) -> RefusedRequestView:
    return project(
        RefusedRequestView,
        refused,
        since=rfc3339(now.wall - refused.seconds),
        age=round(refused.seconds, 1),
    )


def _obstacle(service: ServiceState, now: Instant) -> ObstacleView | None:
    obstacle = service.obstacle
    if obstacle is None:
        return None
    if obstacle.kind == "few-agents":
        effect = "few nodes can be marked"
    elif obstacle.kind == "webhook-down":
        effect = "some marks are not set or released"
    elif service.leader and not service.is_leader:
        effect = "this replica writes nothing"
    else:
        effect = "nothing is written"
    seconds = max(0.0, now.mono - obstacle.since)
    return ObstacleView(
        obstacle.kind, effect, obstacle.reason, rfc3339(now.wall - seconds), round(seconds, 1)
    )


def _frozen_age(agents: StaleAgents, service: ServiceState, now: Instant) -> float:
    """Return for how many seconds new marks have been frozen; 0 if they are not."""
    if not agents.frozen or service.lacks_reports_since is None:
        return 0.0
    return round(max(0.0, now.mono - service.lacks_reports_since), 1)


def _replica(service: ServiceState, now: Instant) -> ReplicaView:
    up = max(0.0, now.mono - service.started)
    obstacle = service.obstacle
    reason = obstacle.reason if obstacle is not None and obstacle.kind not in PARTIAL_OBSTACLES else ""
    return ReplicaView(
        leader=service.leader,
        is_leader=service.is_leader,
        is_active=service.is_leader and not reason,
        inactive_reason=reason,
        since=rfc3339(now.wall - up),
        age=round(up, 1),
        plan_age=None if service.plan_age is None else round(service.plan_age, 1),
        nodeguard_version=service.version,
    )


def _agents(planner: Planner, stale_agents: StaleAgents) -> AgentCounts:
    stale = sum(1 for uid in stale_agents.stale if uid in planner.last_reports)
    return AgentCounts(stale_agents.expected, stale_agents.reported, len(stale_agents.stale), stale)


def _nodes(planner: Planner, healths: Counter[Health | None]) -> NodeCounts:
    """Return the numbers of nodes. healths: number of nodes by health; None for unknown."""
    placements = planner.state.placements
    return NodeCounts(
        ok=healths[Health.OK],
        warning=healths[Health.WARNING],
        suspect=healths[Health.SUSPECT],
        fatal=healths[Health.FATAL],
        unknown=healths[None],
        partially_read=sum(
            1 for uid in placements if (report := planner.reports.get(uid)) is not None and report.unread
        ),
        on_hold=sum(1 for placement in placements.values() if placement.hold),
        maintenance=sum(1 for placement in placements.values() if placement.maintenance),
        cordoned_by_user=sum(1 for placement in placements.values() if placement.cordoned_by_user),
        owned=dict(planner.state.owned_nodes()),
    )


def _marked(planner: Planner) -> dict[str, MarkedCounts]:
    nodes: Counter[Mark] = Counter()
    devices: Counter[Mark] = Counter()
    for uid in planner.state.marks.marked_nodes():
        marks = planner.state.marks_in_effect(uid)
        nodes.update([mark] if (mark := worst(marks.node.marks)) else [])
        devices.update(mark for record in marks.devices.values() if (mark := worst(record.marks)))
    return {mark.value: MarkedCounts(nodes[mark], devices[mark]) for mark in Mark}


def _left_out(planner: Planner) -> OmittedIncidents:
    counts = Counter({uid: len(names) for uid, names in planner.tracker.recorded.left_out.items()})
    nodes = planner.state.nodes
    most = tuple(nodes[uid].name for uid, _ in counts.most_common(_WORST) if uid in nodes)
    return OmittedIncidents(counts.total(), len(counts), most)


def _real(decisions: Iterable[MarkDecision]) -> list[MarkDecision]:
    """Return the decisions on requests of real faults."""
    return [decision for decision in decisions if not decision.request.injected]


def _count(by_node: Iterable[Iterable[MarkDecision]], state: IncidentState) -> MarkCount:
    counts = [sum(1 for decision in decisions if decision.state == state) for decisions in by_node]
    return MarkCount(sum(counts), sum(1 for count in counts if count))


def list_budgets(planner: Planner, now: Instant) -> BudgetList:
    """Return all budgets that marks are charged to."""
    return BudgetList(VERSION, rfc3339(now.wall), tuple(_all_budgets(planner)))


def _budgets(planner: Planner) -> list[BudgetView]:
    """Return the budget of the fleet, then those that are at least half used, fullest first."""
    return [
        budget for budget in _all_budgets(planner) if budget.name == FLEET or budget.used >= budget.limit / 2
    ]


def _all_budgets(planner: Planner) -> list[BudgetView]:
    """Return the budget of the fleet first, then the fullest first."""
    usage = planner.state.budgets
    budgets = {values[0]: BudgetView(*values) for values in usage.rows()}
    placement = next(iter(planner.state.placements.values()), None)
    if placement is not None:
        [fleet] = (BudgetView(*values) for values in usage.rows_of_node(placement) if values[0] == FLEET)
        budgets.setdefault(FLEET, fleet)
    return sorted(
        budgets.values(), key=lambda budget: (budget.name != FLEET, -budget.used / budget.limit, budget.name)
    )
