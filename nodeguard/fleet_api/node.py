"""Views of nodes: one node in full, and the list. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Set
from math import inf

from nodeguard.fleet.decide.admission import MarkDecision
from nodeguard.fleet.decide.mark_requests import no_request_reason
from nodeguard.fleet.planner import Planner
from nodeguard.fleet.state.latest_report import LatestReport
from nodeguard.fleet.state.node_placement import DOMAIN, NodePlacement
from nodeguard.fleet.state.rejected_reports import RejectedReport
from nodeguard.fleet_api.action import node_actions
from nodeguard.fleet_api.capacity import count_gpus, work_state
from nodeguard.fleet_api.drain import drain_views
from nodeguard.fleet_api.incident import list_incidents, summarize_incident
from nodeguard.fleet_api.job_outcomes import job_outcomes, rejected_pods_view
from nodeguard.fleet_api.marks import marks_of_node
from nodeguard.fleet_api.recovery import finding_commands, remedy
from nodeguard.fleet_api.schema.node import (
    ChargeView,
    FindingView,
    MarkRequestView,
    NodeList,
    NodeSummary,
    NodeView,
    UnreadableView,
)
from nodeguard.fleet_api.schema.replica import RefusedMessages
from nodeguard.fleet_api.schema.status import VERSION, BudgetView, InjectedFaultView, RepeatOffenderView
from nodeguard.fleet_api.service_state import ServiceState, age
from nodeguard.model.check import Check
from nodeguard.model.drain import DrainMode
from nodeguard.model.finding import DataStatus, Health
from nodeguard.model.incident import IncidentState
from nodeguard.model.instant import Instant, rfc3339
from nodeguard.model.label_selector import EVERY_NODE, LabelSelector
from nodeguard.model.mark import Mark, NodeMarks
from nodeguard.model.projection import project
from nodeguard.wire.report import Inventory


def refused_messages(refusal: RejectedReport, now: Instant) -> RefusedMessages:
    """Return the refused messages of a node."""
    return project(
        RefusedMessages,
        refusal,
        latest=rfc3339(now.wall_of(refusal.last)),
        age=round(max(0.0, now.mono - refusal.last), 1),
        since=rfc3339(now.wall_of(refusal.first)),
        since_age=round(max(0.0, now.mono - refusal.first), 1),
    )


def repeat_offenders(planner: Planner, now: Instant, node: str = "") -> tuple[RepeatOffenderView, ...]:
    """Return the repeat offenders, worst first; those of one node where it is named."""
    return tuple(
        project(
            RepeatOffenderView,
            offender,
            component=offender.part,
            expected=round(offender.expected, 4),
            latest=rfc3339(offender.at),
            latest_age=age(now, offender.at),
            since=rfc3339(offender.since),
            age=age(now, offender.since),
        )
        for offender in planner.component_faults.repeat_offenders(now)
        if not node or offender.node == node
    )


# Health of a node without a current report.
UNKNOWN = DataStatus.UNKNOWN.value


def known_health(planner: Planner, uid: str, stale: Set[str]) -> Health | None:
    """Return the current health of a node; None without a current report, or where no check could be
    evaluated.

    stale: uids of nodes with stale agents.
    """
    return None if uid in stale else reported_health(planner.reports.get(uid))


def reported_health(report: LatestReport | None) -> Health | None:
    """Return the health in a report; None without a report, or where no check could be evaluated."""
    if report is None or (
        report.health == Health.OK and report.data_status == DataStatus.UNKNOWN and not report.proven
    ):
        return None
    return report.health


def _drains_known_by(planner: Planner, service: ServiceState, uid: str) -> str:
    """Return the leader if only it knows the drains of a node that there may be; else empty."""
    may_drain = planner.policy.drain.mode != DrainMode.DISABLED and any(planner.state.drain_marks(uid))
    return service.leader if may_drain and not service.is_leader else ""


def describe_node(
    planner: Planner,
    service: ServiceState,
    name: str,
    now: Instant,
    checks: Mapping[str, Check] | None = None,
) -> NodeView | None:
    """Return the view of the node of a name; None where no node has it. checks: for the commands of each."""
    state = planner.state
    uid = state.uid(name)
    placement, report = state.placements.get(uid), planner.reports.get(uid)
    if not uid:
        return None
    decisions, marks = planner.tracker.decisions.get(uid, ()), state.marks.latest(uid)
    inventory = report.inventory if report else Inventory()
    last, stale = planner.last_reports.get(uid), planner.state.stale_agents(now).stale
    health, reported = known_health(planner, uid, stale), reported_health(report)
    refusal = next((item for item in service.refused if item.node == name), None)
    findings = tuple(_findings(planner, uid, report, now, checks or {})) if report else ()
    actions, actions_omitted = node_actions(service, uid, now)
    jobs = state.jobs.names(uid)
    parents = filter(None, map(planner.incident, dict.fromkeys(item.explained_by for item in findings)))
    return NodeView(
        version=VERSION,
        at=rfc3339(now.wall),
        node=name,
        uid=uid,
        health=health.value if health else UNKNOWN,
        reported=reported.value if reported else "",
        data_status=report.data_status if report else DataStatus.UNKNOWN,
        health_known=health is not None,
        last_report=rfc3339(now.wall_of(last)) if last is not None else "",
        last_report_age=round(max(0.0, now.mono - last), 1) if last is not None else None,
        stale=last is None or uid in stale,
        boot_id=report.boot_id if report else "",
        agent_version=report.agent if report else "",
        catalogue_version=report.catalogue if report else "",
        driver=inventory.driver,
        platform=inventory.platform,
        gpus=count_gpus(planner, uid),
        pool=placement.pool if placement else "",
        domains=tuple(domain.removeprefix(DOMAIN) for domain in placement.domains) if placement else (),
        cordoned_by_user=placement.cordoned_by_user if placement else False,
        cordoned=state.marks.observed(uid).is_out,
        hold=placement.hold if placement else "",
        maintenance=placement.maintenance if placement else "",
        marks=marks_of_node(planner, uid, now),
        findings=findings,
        withheld=tuple(_mark_requests(decisions, IncidentState.WITHHELD, now)),
        would_mark=tuple(_mark_requests(decisions, IncidentState.DRY_RUN, now)),
        charges=tuple(_charges(marks, now)),
        budgets=tuple(_budgets(planner, uid)),
        unreadable=tuple(
            UnreadableView(item.source, item.subject, item.reason, item.targets) for item in report.unread
        )
        if report
        else (),
        unknown_taints=state.marks.observed(uid).foreign if placement else (),
        incidents=(
            *list_incidents(planner, service, now, frozenset(IncidentState), name).incidents,
            *(summarize_incident(planner, incident, service, now) for incident in parents),
        ),
        repeat_offenders=repeat_offenders(planner, now, name),
        pending=tuple(_mark_requests(decisions, IncidentState.PENDING, now)),
        owner=state.nodes[uid].owner,
        advisory=planner.granted == IncidentState.ADVISED,
        refused_messages=refused_messages(refusal, now) if refusal is not None else None,
        incidents_omitted=len(planner.tracker.recorded.left_out.get(uid, ())),
        jobs=jobs,
        rejected_pods=rejected_pods_view(service, uid, now),
        job_outcomes=job_outcomes(jobs, uid, service, now, since=inf),
        injected_faults=injected_faults(name, report),
        findings_omitted=report.omitted if report else 0,
        actions=actions,
        actions_omitted=actions_omitted,
        record_problem=state.marks.observed(uid).record_problem,
        drains=drain_views(service.drains, now, uid),
        drains_known_by=_drains_known_by(planner, service, uid),
    )


def placements(planner: Planner, of: str = "", selector: LabelSelector = EVERY_NODE) -> list[NodePlacement]:
    """Return nodes of the fleet, by name. of: name of the only one; empty for all. selector: of labels."""
    nodes = planner.state.nodes
    selected = (
        node
        for node in planner.state.placements.values()
        if of in {"", node.name} and selector.matches(nodes[node.uid].labels)
    )
    return sorted(selected, key=lambda node: node.name)


def list_nodes(planner: Planner, now: Instant, selector: LabelSelector = EVERY_NODE) -> NodeList:
    """Return the nodes of the fleet that a selector selects, by name."""
    summaries = summarize_nodes(planner, placements(planner, selector=selector), now)
    return NodeList(VERSION, rfc3339(now.wall), summaries)


def summarize_nodes(
    planner: Planner, nodes: Iterable[NodePlacement], now: Instant
) -> tuple[NodeSummary, ...]:
    """Return the summaries of nodes of the fleet, in their order."""
    marked, stale = frozenset(planner.state.marks.marked_nodes()), planner.state.stale_agents(now).stale
    return tuple(
        _summary(planner, node, stale, now, _marks(planner, node.uid) if node.uid in marked else ())
        for node in nodes
    )


def _summary(
    planner: Planner, placement: NodePlacement, stale: Set[str], now: Instant, marks: tuple[Mark, ...]
) -> NodeSummary:
    health = known_health(planner, placement.uid, stale)
    requests = planner.tracker.decisions.get(placement.uid, ())
    states = Counter(outcome.state for outcome in requests if not outcome.request.injected)
    report, last = planner.reports.get(placement.uid), planner.last_reports.get(placement.uid)
    findings = report.findings if report else ()
    worst = max(findings, key=lambda finding: finding.health.rank, default=None)
    inventory = report.inventory if report else Inventory()
    return NodeSummary(
        node=placement.name,
        health=health.value if health else UNKNOWN,
        stale=placement.uid in stale,
        marks=marks,
        withheld=states[IncidentState.WITHHELD],
        would_mark=states[IncidentState.DRY_RUN],
        hold=placement.hold,
        maintenance=placement.maintenance,
        pending=states[IncidentState.PENDING],
        findings=len(findings),
        worst=worst.check if worst else "",
        message=worst.message if worst else "",
        last_report_age=round(max(0.0, now.mono - last), 1) if last is not None else None,
        driver=inventory.driver,
        platform=inventory.platform,
        gpus=count_gpus(planner, placement.uid),
        pool=placement.pool,
        injected=tuple(_injected_checks(planner, placement.uid, report)),
        work=work_state(planner, placement, health),
    )


def _injected_checks(planner: Planner, uid: str, report: LatestReport | None) -> dict[str, None]:
    """Return the checks with an injected fault, or with the mark of one that is over."""
    reported = report.faults() if report is not None else ()
    active = [fault.finding.check for fault in reported if fault.injected]
    marked = [cause.check for _, cause in planner.state.marks.latest(uid).causes() if cause.injected]
    return dict.fromkeys((*active, *marked))


def injected_faults(node: str, report: LatestReport | None) -> tuple[InjectedFaultView, ...]:
    """Return the faults that operators injected on a node, those that the policy accepts first."""
    faults = sorted(report.injections, key=lambda fault: fault.refusal != "") if report else ()
    return tuple(
        InjectedFaultView(
            node,
            fault.finding.check,
            fault.finding.target,
            fault.finding.health,
            fault.by,
            rfc3339(fault.began),
            rfc3339(fault.until),
            fault.refusal,
        )
        for fault in faults
    )


def _marks(planner: Planner, uid: str) -> tuple[Mark, ...]:
    """Return the marks of a node and its devices that are in effect, worst first."""
    marks = planner.state.marks_in_effect(uid)
    active = {mark for device in marks.carriers for mark in marks.record_of(device).marks}
    return tuple(mark for mark in Mark if mark in active)


def _findings(
    planner: Planner, uid: str, report: LatestReport, now: Instant, checks: Mapping[str, Check]
) -> Iterator[FindingView]:
    decisions = planner.tracker.decisions.get(uid, ())
    outcomes_by_finding = {(item.request.check, item.request.target): item for item in decisions}
    commands = finding_commands(planner, uid, planner.state.nodes[uid].name, now, checks)
    for finding, began, injected in report.faults():
        outcome = outcomes_by_finding.get((finding.check, finding.target))
        # No shared hardware causes an injected fault.
        parent = None if injected else planner.parent_incident(uid, finding.check, began, now)
        yield project(
            FindingView,
            finding,
            since=rfc3339(began),
            age=age(now, began),
            evidence=tuple(f"{evidence.source}: {evidence.message}" for evidence in finding.evidence),
            state=outcome.state if outcome else None,
            reason=outcome.reason
            if outcome
            else no_request_reason(report, finding, began) or "not planned for yet",
            until=rfc3339(outcome.until) if outcome and outcome.until else "",
            seconds_left=_seconds_left(outcome, now) if outcome else 0.0,
            injected=injected,
            # No hardware failed.
            how=() if injected else commands(finding),
            remedy="" if injected else remedy(finding.check, finding.action, checks),
            evidence_omitted=finding.omitted,
            explained_by=parent.name if parent else "",
        )


def _mark_requests(
    decisions: tuple[MarkDecision, ...], state: IncidentState, now: Instant
) -> Iterator[MarkRequestView]:
    for outcome in decisions:
        if outcome.state == state:
            request = outcome.request
            yield project(
                MarkRequestView,
                request,
                device=request.device.name if request.device else "",
                since=rfc3339(request.since),
                age=age(now, request.since),
                reason=outcome.reason,
                until=rfc3339(outcome.until) if outcome.until else "",
                seconds_left=_seconds_left(outcome, now),
            )


def _seconds_left(outcome: MarkDecision, now: Instant) -> float:
    """Return the seconds to the end of a grace period; 0 without one."""
    return round(max(0.0, outcome.until - now.wall), 1)


def _charges(marks: NodeMarks, now: Instant) -> Iterator[ChargeView]:
    for place in marks.carriers:
        charge = marks.record_of(place).charge
        if charge is not None:
            device = place.name if place else ""
            at = rfc3339(charge.at)
            yield ChargeView(charge.check, device, at, age(now, charge.at), injected=charge.injected)
    for past in marks.node.past_charges:
        at, ended = rfc3339(past.at), rfc3339(past.ended)
        yield ChargeView(past.check, "", at, age(now, past.at), ended, past.occurrences)


def _budgets(planner: Planner, uid: str) -> Iterator[BudgetView]:
    """Yield the budgets of where the node is placed, and of the checks that its marks are charged to."""
    placement, usage = planner.state.placements.get(uid), planner.state.budgets
    if placement is None:
        return
    for budget in usage.rows_of_node(placement):
        yield BudgetView(*budget)
    marks = planner.state.marks.latest(uid)
    charges = [charge for place in marks.carriers if (charge := marks.record_of(place).charge) is not None]
    names = {f"check/{charge.check}" for charge in charges}
    names |= {mark.kind.budget for mark in marks.node.marks} - set(placement.budgets)
    rows = usage.rows(free=placement.cordoned_by_user)
    yield from (BudgetView(*budget) for budget in rows if budget[0] in names)
