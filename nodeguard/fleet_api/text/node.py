"""The view of nodeguard describe node. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from nodeguard.fleet.act.drain_report import DrainState
from nodeguard.fleet_api.action import drain_purpose
from nodeguard.fleet_api.schema.action import ActionView
from nodeguard.fleet_api.schema.job import JobOutcomeView
from nodeguard.fleet_api.schema.node import ChargeView, MarkRequestView, MarkView, NodeView
from nodeguard.fleet_api.schema.unreported import UnreportedNode
from nodeguard.fleet_api.text.drain import drain_fields
from nodeguard.fleet_api.text.fault import (
    NodeFault,
    dry_run_effect,
    fault_section,
    incident_field,
    is_of_domain,
    node_faults,
)
from nodeguard.fleet_api.text.incident import incident_view
from nodeguard.fleet_api.text.job import job_fields, rejected_pods_fields
from nodeguard.fleet_api.text.phrases import (
    budgets_text,
    check_name,
    injected_field,
    mark_section,
    refused_field,
    repeat_offender_text,
    state_text,
)
from nodeguard.fleet_api.text.wording import api_time, count_noun, first_names, format_age, target_text
from nodeguard.fleet_api.view import Field, Section, Subject, View, badge_heading, see
from nodeguard.model.action import ActionKind, ActionState
from nodeguard.model.finding import DataStatus
from nodeguard.model.incident import IncidentState
from nodeguard.model.injection import PREFIX
from nodeguard.model.mark import Requester, mark_kind, mark_rank
from nodeguard.model.target import target_label


def node_view(node: NodeView) -> View:
    """Return the view: its state, a card for each degraded domain and each fault, then mark requests, budgets
    and the other incidents. Without reports, the incidents have the cards of faults.
    """
    heading = badge_heading(node.health, node.health, f"{node.node}: {_summary(node)}.")
    incidents = node.open_incidents if isinstance(node, UnreportedNode) else ()
    with_card = {mark for incident in incidents for mark in incident.marks}
    faults = [fault for fault in node_faults(node) if with_card.isdisjoint(fault.marks)]
    last = (*_requests(node), *_last(node), *_other_incidents(node, faults))
    return View(
        (
            Section(heading, tuple(_facts(node))),
            *(_domain(mark) for mark in node.marks if is_of_domain(mark)),
            *(
                section
                for incident in incidents
                for section in incident_view(incident, is_part=True).sections
            ),
            *map(fault_section, faults),
            *((Section(None, last),) if last else ()),
        )
    )


def _domain(mark: MarkView) -> Section:
    """Return the card of a degraded domain: the domain has the reason, and what to do."""
    section = mark_section(mark)
    return replace(section, rows=(*section.rows, see(Subject("domain", mark.target))))


def _requests(node: NodeView) -> Iterator[Field]:
    """Yield the mark requests without their finding."""
    with_finding = {(finding.check, finding.target) for finding in node.findings}
    states = {
        IncidentState.PENDING: node.pending,
        IncidentState.WITHHELD: node.withheld,
        IncidentState.DRY_RUN: node.would_mark,
    }
    for state, requests in states.items():
        for request in requests:
            if (request.check, request.target) not in with_finding:
                yield _request(state, request)


def _summary(node: NodeView) -> str:
    # A mark that is not on its object keeps no work away.
    marks = [mark for mark in node.marks if mark.written]
    degraded = [mark for mark in marks if mark_kind(mark.mark).requester == Requester.DOMAIN]
    whole = [mark for mark in marks if not (mark.device or mark in degraded)]
    devices = dict.fromkeys(mark.device for mark in marks if mark.device)
    if whole:
        checks = first_names(dict.fromkeys(check_name(mark.check, injected=mark.injected) for mark in whole))
        kind = mark_kind(whole[0].mark)
        effect = _advice(node, kind.excluded_work, "it") or f"{kind.marked}, no {kind.work}"
        text = f"{effect}: {checks}"
    elif degraded:
        domains = first_names(dict.fromkeys(mark.target for mark in degraded))
        work = mark_kind(degraded[0].mark).work
        text = f"{_advice(node, work, 'it') or f'no {work}'}: {domains} degraded"
    elif devices:
        names = first_names(devices)
        if all(mark.injected for mark in marks):
            names = f"{names} ({PREFIX.strip(': ')})"
        text = _advice(node, "new work", f"its {names}") or f"quarantined, no new work: its {names}"
    elif requested := _requested(node, injected=False) or _requested(node, injected=True):
        text = requested
    elif node.findings:
        text = "not marked"
    else:
        unknown = "no mark, health not read" if isinstance(node, UnreportedNode) else "health unknown"
        text = "all checks passed" if node.health_known else unknown
    if node.unknown_taints:
        text = f"tainted, but not by nodeguard ({first_names(node.unknown_taints)}); {text}"
    return f"{text}; cordoned by an operator" if node.cordoned_by_user else text


def _requested(node: NodeView, *, injected: bool) -> str:
    """Return the state of the requested marks, of real faults or of injected ones; empty for none."""
    withheld, pending, would_mark = (
        [request for request in requests if request.injected == injected]
        for requests in (node.withheld, node.pending, node.would_mark)
    )
    if withheld:
        return f"not marked ({_check(withheld[0])}): {withheld[0].reason}"
    if pending:
        first = min(pending, key=lambda request: request.seconds_left)
        state = state_text(IncidentState.PENDING, first.until, first.seconds_left)
        return f"mark requested by {_check(first)}: {state}"
    return _dry_run(would_mark) if would_mark else ""


def _dry_run(requests: Sequence[MarkRequestView]) -> str:
    """Return the effect of enforcement on the node: its worst mark, else why that would be withheld."""
    first = min(requests, key=lambda request: (request.reason != "", mark_rank(request.mark)))
    if first.reason:
        return f"dry run: the mark of {_check(first)} would be withheld: {first.reason}"
    return f"dry run: it would be {mark_kind(first.mark).marked}: {_check(first)}"


def _check(request: MarkRequestView) -> str:
    return check_name(request.check, injected=request.injected)


def _advice(node: NodeView, work: str, subject: str) -> str:
    """Return the advice where marks are advice; empty where they are written."""
    return f"advice: keep {work} off {subject}" if node.advisory else ""


def _facts(node: NodeView) -> Iterator[Field]:
    yield _report(node)
    if isinstance(node, UnreportedNode) and node.condition:
        yield Field("condition", node.condition)
    if node.refused_messages is not None:
        yield refused_field(node.refused_messages)
    for fault in node.injected_faults:
        yield injected_field(fault, with_node=False)
    # The field of its action has a drain that runs.
    yield from drain_fields([drain for drain in node.drains if drain.state != DrainState.RUNNING])
    if node.drains_known_by:
        yield Field("drain", f"only the leader shows it: {node.drains_known_by}", "dim")
    for action in node.actions:
        yield _action(action)
    if node.actions_omitted:
        yield Field("", f"and {node.actions_omitted} more: nodeguard history {node.node}", "dim")
    yield from _identity(node)
    yield from job_fields(node.jobs, 0, _without_repeated_reasons(node))
    yield from rejected_pods_fields(node.rejected_pods)
    yield from _operation(node)
    for offender in node.repeat_offenders:
        yield Field("replace", repeat_offender_text(offender), name_style="warning")
    if node.unknown_taints:
        text = f"foreign nodeguard.dev taints, left unchanged: {first_names(node.unknown_taints)}"
        yield Field("taints", text, name_style="warning")
    if node.record_problem:
        text = f"the record of the marks is refused: remove annotations of the Node: {node.record_problem}"
        yield Field("record", text, name_style="warning")


def _identity(node: NodeView) -> Iterator[Field]:
    """Yield what runs on the node, its GPUs, and the domains that it shares with others."""
    versions = (
        node.agent_version and f"nodeguard {node.agent_version}",
        node.driver and f"driver {node.driver}",
        node.platform,
    )
    if any(versions):
        yield Field("runs", ", ".join(filter(None, versions)))
    pool = f"; pool {node.pool}" if node.pool else "; no pool"
    if isinstance(node, UnreportedNode):
        pool = ""  # the policy has it
    yield Field("hardware", f"{count_noun(node.gpus, 'GPU')}{pool}")
    if node.domains:
        domains = tuple(Subject("domain", domain) for domain in node.domains)
        yield Field("domains", ", ".join(node.domains), subjects=domains)


# The state of an action, after what it does.
_ACTION_STATES = {
    ActionState.RESERVED: "not sent yet",
    ActionState.RUNNING: "the agent has not answered yet",
    ActionState.UNKNOWN: "result unknown",
}


def _action(action: ActionView) -> Field:
    """Return the field of a request to the agent of the node, with the answer, or of a drain."""
    is_drain = action.kind in {ActionKind.DRAIN, ActionKind.DRAIN_NOTICE}
    state, message = action.state.value.lower(), action.message
    if not is_drain:
        state = _ACTION_STATES.get(action.state, state)
    elif action.kind == ActionKind.DRAIN and action.state == ActionState.RUNNING:
        state = f"{state}, {action.carried_out} of {count_noun(action.parts, 'pod')} gone"
    times = f"requested {action.times} times, the last by" if action.times > 1 else "requested by"
    by = f"for the {drain_purpose(action)}" if is_drain else f"{times} {action.request}"
    text = f"{action.purpose}, {by}, {format_age(action.age)}: {state}"
    return Field("action", f"{text}: {message}" if message else text)


def _without_repeated_reasons(node: NodeView) -> list[JobOutcomeView]:
    """Return what drains do with the pods of the jobs, without reasons that the field of an action has."""
    messages = {action.name: action.message for action in node.actions}
    return [
        replace(outcome, reason="") if messages.get(outcome.action) == outcome.reason else outcome
        for outcome in node.job_outcomes
    ]


def _operation(node: NodeView) -> Iterator[Field]:
    """Yield who carries out the marks of the node, and what operators set."""
    if node.owner:
        yield Field("owner", f"webhook {node.owner}: a mark is in effect once its receiver has accepted it")
    if node.hold:
        yield Field("hold", f"{node.hold}; nodeguard changes nothing here", name_style="suspect")
    if node.maintenance:
        text = f"{node.maintenance}; no new mark is set, and no check counts as passed"
        yield Field("maintenance", text, name_style="suspect")
    if node.cordoned:
        yield Field("cordon", "set by nodeguard; removed with the quarantine")


def _report(node: NodeView) -> Field:
    if isinstance(node, UnreportedNode):
        return Field("not read", node.not_read, name_style="warning")
    if node.last_report_age is None:
        text = "none since this aggregator started: check that the agent runs and reaches it"
        return Field("last report", text, name_style="warning")
    text = format_age(node.last_report_age)
    if node.stale:
        text += "; stale" + (f", health then: {node.reported}" if node.reported else "")
    if node.data_status != DataStatus.FRESH:
        text += f"; part of the data is {node.data_status.value}"
    return Field("last report", text, name_style="warning" if node.stale else "dim")


def _request(state: IncidentState, request: MarkRequestView) -> Field:
    """Return the field of a mark request without its finding."""
    text = (
        f"dry run, {dry_run_effect(request.reason)}"
        if state == IncidentState.DRY_RUN
        else state_text(state, request.until, request.seconds_left)
    )
    reason = f": {request.reason}" if state == IncidentState.WITHHELD else ""
    target = target_text(request.target)
    return Field("requested", f"{request.mark} for {_check(request)} on {target}, {text}{reason}")


def _last(node: NodeView) -> Iterator[Field]:
    for charge in node.charges:
        yield _charge(charge)
    if node.budgets:
        yield Field("budgets", budgets_text(node.budgets))
    for unreadable in node.unreadable:
        is_node = unreadable.targets in {(), ("node",)}
        targets = "" if is_node else f" of {first_names(map(target_label, unreadable.targets))}"
        text = f"{unreadable.source}{targets}: {unreadable.reason or unreadable.readings}"
        yield Field("not read", text, name_style="warning")
    if node.findings_omitted:
        text = f"{count_noun(node.findings_omitted, 'more finding')}: run nodeguard check on the node"
        yield Field("omitted", text, name_style="warning")
    if node.incidents_omitted:
        count = count_noun(node.incidents_omitted, "incident")
        text = f"{count} over the limit; the findings are above"
        yield Field("omitted", text, name_style="warning")


def _other_incidents(node: NodeView, faults: Sequence[NodeFault]) -> Iterator[Field]:
    """Yield the incidents that no card has: those of domains and checks, and those that are over."""
    with_card = {fault.incident.name for fault in faults if fault.incident is not None}
    if isinstance(node, UnreportedNode):
        with_card |= {incident.name for incident in node.open_incidents}
    for incident in node.incidents:
        if incident.name not in with_card:
            state = "" if incident.state == IncidentState.RESOLVED else incident.state.phrase
            yield incident_field(incident, state)


def _charge(charge: ChargeView) -> Field:
    """Return the field of a charge, or of a released mark that makes the next soak period longer."""
    device = f", device {charge.device}" if charge.device else ""
    prefix = PREFIX if charge.injected else ""
    if not charge.ended:
        text = f"{prefix}against the limit of check {charge.check}{device}; set {format_age(charge.age)}"
        return Field("counts", text)
    count = f", {charge.count} times recently" if charge.count > 1 else ""
    text = f"{charge.check} at {api_time(charge.ended)}{count}; its next soak period is longer"
    return Field("released", text)
