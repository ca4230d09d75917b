"""Phrases, fields and sections that the views of the fleet share. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nodeguard.fleet.diagnosis.results import CHECK, JOB
from nodeguard.fleet.state.node_placement import POOL
from nodeguard.fleet.state.topology.topologies import PLACES
from nodeguard.fleet_api.schema.capacity import CapacityView, ReasonCount, WorkState
from nodeguard.fleet_api.schema.domain import MissingLabelView, SuppressedCheckView, TopologyView
from nodeguard.fleet_api.schema.incident_summary import StateGroup
from nodeguard.fleet_api.schema.node import MarkView, NodeSummary
from nodeguard.fleet_api.schema.replica import RefusedMessages
from nodeguard.fleet_api.schema.status import (
    BudgetView,
    DryRunView,
    FleetStatus,
    InjectedFaultView,
    RepeatOffenderView,
)
from nodeguard.fleet_api.text.wording import (
    api_time,
    count_noun,
    first_names,
    format_age,
    names_text,
    number_text,
    target_text,
    time_and_age,
    time_left,
)
from nodeguard.fleet_api.view import Field, Section, badge_heading
from nodeguard.judge.formatting import format_duration
from nodeguard.model.diagnosis import Guidance
from nodeguard.model.incident import IncidentState
from nodeguard.model.injection import PREFIX
from nodeguard.model.mark import Requester, mark_kind
from nodeguard.model.target import target_label

_LEAST_SHOWN = 0.05

# Style by state: it highlights a fault on a node that still takes work.
STYLES = {
    IncidentState.OPEN: "warning",
    IncidentState.PENDING: "warning",
    IncidentState.DRY_RUN: "warning",
    IncidentState.WITHHELD: "fatal",
    IncidentState.MARKED: "suspect",
    IncidentState.ADVISED: "suspect",
    IncidentState.RECOVERING: "ok",
    IncidentState.RESOLVED: "dim",
}
# Whether nodes take work, after a number of them, in the order of the bar of the page.
WORK_STATES = {
    WorkState.WORKING: "working",
    WorkState.UNKNOWN: "of unknown health",
    WorkState.FAULTY: "faulty in service",
    WorkState.MARKED: "marked by nodeguard",
    WorkState.CORDONED: "cordoned by others",
    WorkState.NOT_READY: "not ready",
}
# States in counts of nodes.
_GROUP_STATES = {state: state.phrase for state in IncidentState} | {
    IncidentState.OPEN: "reported only",
    IncidentState.DRY_RUN: "in dry run",
}


def guidance_section(guidance: Guidance) -> Section:
    """Return what people do about a degraded domain."""
    fields = (
        Field("look first", guidance.first),
        Field("nodes", guidance.nodes),
        Field("ends", guidance.end),
    )
    return Section(badge_heading("what to do", "strong", owner_text(guidance)), fields)


def owner_text(guidance: Guidance) -> str:
    """Return which team acts on a degraded domain: `The network team acts`."""
    return f"{guidance.owner[:1].upper()}{guidance.owner[1:]} acts"


def guidance_text(guidance: Guidance) -> str:
    """Return which team acts on a degraded domain, and what it looks at first."""
    return f"{owner_text(guidance)}. Look first: {guidance.first}"


def refused_field(messages: RefusedMessages) -> Field:
    """Return the field about messages of a node that were refused."""
    count = f"{count_noun(messages.count, 'message')} of {messages.node}"
    since = f" since {format_age(messages.since_age)}" if messages.count > 1 else ""
    text = f"{count}{since}, latest {format_age(messages.age)}: {messages.message}"
    return Field("refused", text, name_style="fatal")


def subject_noun(node: str, domain: str, resource: str) -> str:
    """Return of what an incident is: `node`, `domain`, `check` or `job`."""
    return "node" if node else "domain" if domain else resource.partition("/")[0]


def subject_text(node: str, domain: str, resource: str) -> str:
    """Return the subject of an incident: a target of a node, a domain, a check, or a job."""
    if node:
        return f"{node}, {target_text(resource)}"
    kinds = {CHECK: "check", JOB: "job"}
    prefix = next((prefix for prefix in kinds if resource.startswith(prefix)), "")
    return domain or (f"{kinds[prefix]} {resource.removeprefix(prefix)}" if prefix else resource)


def shared_subject_state(resource: str) -> str:
    """Return the state of the subject of an incident of a check or a job, as text."""
    return "started badly" if resource.startswith(JOB) else "is suppressed"


def node_notes(node: NodeSummary) -> str:
    """Return the state of a node in a list: its report, operators' settings, marks, and the worst finding."""
    notes = (
        "stale" if node.stale and node.last_report_age is not None else "",
        "no report yet" if node.stale and node.last_report_age is None else "",
        f"hold: {node.hold}" if node.hold else "",
        f"maintenance: {node.maintenance}" if node.maintenance else "",
        f"{count_noun(node.withheld, 'mark')} withheld" if node.withheld else "",
        f"{count_noun(node.pending, 'mark')} pending" if node.pending else "",
        f"dry run: {count_noun(node.would_mark, 'mark')}" if node.would_mark else "",
        f"{PREFIX}{first_names(node.injected)}" if node.injected else "",
        node.message or node.worst,
    )
    return "; ".join(filter(None, notes))


def gpus_text(capacity: CapacityView) -> str:
    """Return how many GPUs are in service: `2512 of 2560 in service`; empty for no GPUs."""
    return f"{capacity.gpus_in_service} of {capacity.gpus} in service" if capacity.gpus else ""


def budget_name(budget: BudgetView) -> str:
    """Return the name of a budget: `fleet`, `default pool`, `rack/r0`, `check gpu-lost`."""
    kind, _, name = budget.name.partition("/")
    if budget.name == POOL:
        return "default pool"
    return name if kind == "domain" else f"{kind} {name}".strip()


def budget_text(budget: BudgetView) -> str:
    """Return a budget with its use: `fleet 12 of 375`."""
    return f"{budget_name(budget)} {budget_use(budget)}"


def budgets_text(budgets: Sequence[BudgetView], omitted: int = 0) -> str:
    """Return budgets with their use, and what they limit. omitted: those half used and left out."""
    more = f" and {omitted} more that are half used" if omitted else ""
    return f"{', '.join(map(budget_text, budgets))}{more} (in use, of what is allowed at once)"


def budget_use(budget: BudgetView) -> str:
    """Return how much of a budget is used: `12 of 375`."""
    suspect = f" and {count_noun(budget.suspect, 'suspect node')}" if budget.suspect else ""
    return f"{number_text(budget.used)} of {number_text(budget.limit)}{suspect}"


def reasons_text(reasons: Sequence[ReasonCount], others: ReasonCount) -> str:
    """Return reasons with the number of their nodes: of a single one only the reason."""
    if len(reasons) == 1 and not others.marks:
        return reasons[0].reason
    texts = [f"{count_noun(item.nodes, 'node')}: {item.reason}" for item in reasons]
    if others.marks:
        texts.append(f"{count_noun(others.nodes, 'node')}: {others.reason}")
    return "; ".join(texts)


def groups_text(groups: Sequence[StateGroup], noun: str) -> str:
    """Return how many nodes or domains are in each state, with the reason and the first names of each."""
    parts = (f"{group_text(group)}: {names_text(group.names, group.nodes)}" for group in groups)
    return f"{count_noun(sum(group.nodes for group in groups), noun)}: {'; '.join(parts)}"


def group_text(group: StateGroup) -> str:
    """Return how many nodes are in a state, and why: `5 quarantined`, `1 withheld (the node is on hold)`."""
    return f"{group.nodes} {_group_state(group)}" + (f" ({group.reason})" if group.reason else "")


def group_counts(groups: Sequence[StateGroup]) -> str:
    """Return how many nodes are in each state, without the reasons: `3 withheld, 5 quarantined`."""
    counts: dict[str, int] = {}
    for group in groups:
        counts[_group_state(group)] = counts.get(_group_state(group), 0) + group.nodes
    return ", ".join(f"{count} {state}" for state, count in counts.items())


def _group_state(group: StateGroup) -> str:
    is_marked = group.state == IncidentState.MARKED and group.mark is not None
    return mark_kind(group.mark).marked if is_marked and group.mark else _GROUP_STATES[group.state]


def state_text(state: IncidentState, until: str = "", seconds_left: float = 0.0) -> str:
    """Return a state as text. until, seconds_left: of a grace period; without one a pending mark is being
    written.
    """
    if state == IncidentState.PENDING:
        return f"pending (grace period, {time_left(seconds_left)})" if until else "pending (being written)"
    return state.phrase


def dry_run_text(dry_run: DryRunView) -> str:
    """Return what would be marked, and how much of that the budgets allow; empty for nothing."""
    quarantined = [count_noun(dry_run.nodes, "node")] if dry_run.nodes else []
    quarantined += [count_noun(dry_run.devices, "GPU")] if dry_run.devices else []
    marks = [f"{' and '.join(quarantined)} would be quarantined"] if quarantined else []
    marks += [f"{count_noun(dry_run.suspect, 'node')} would be marked suspect"] if dry_run.suspect else []
    if not marks:
        return ""
    if not (dry_run.over_budget or dry_run.otherwise_withheld):
        return f"{', '.join(marks)}, within budget"
    counts = (
        [f"{dry_run.within_budget} within budget"] if dry_run.within_budget or dry_run.over_budget else []
    )
    if dry_run.over_budget:
        limits = reasons_text(dry_run.budget_limits, dry_run.other_limits)
        counts.append(f"{dry_run.over_budget} over budget ({limits})")
    if dry_run.otherwise_withheld:
        reasons = reasons_text(dry_run.reasons, dry_run.other_reasons)
        counts.append(f"{dry_run.otherwise_withheld} withheld ({reasons})")
    return f"{', '.join(marks)}: {', '.join(counts)}"


def faulty_text(capacity: CapacityView) -> str:
    """Return how many nodes are faulty in service, and why no mark keeps work away."""
    reasons = counted_reasons(capacity.reasons, capacity.other_reasons)
    return f"{count_noun(capacity.faulty, 'faulty node')}: {reasons}"


def withheld_text(status: FleetStatus) -> str:
    """Return how many marks are withheld, why, and which budgets refuse them."""
    marks, nodes = count_noun(status.withheld.marks, "mark"), count_noun(status.withheld.nodes, "node")
    text = f"{marks} of {nodes} not set: {counted_reasons(status.reasons, status.other_reasons)}"
    if not status.full_budgets:
        return text
    return f"{text}; {counted_reasons(status.full_budgets, status.other_full_budgets)}"


def counted_reasons(reasons: Sequence[ReasonCount], others: ReasonCount) -> str:
    """Return reasons with the number of nodes of each; without it if there is only one. others: those that
    are left out.
    """
    shown = [*reasons, *([others] if others.marks else [])]
    texts = [f"{item.reason} ({item.nodes})" if len(shown) > 1 else item.reason for item in shown]
    return ", ".join(texts)


def check_name(check: str, *, injected: bool) -> str:
    """Return the name of a check in a title. injected: whether an operator injected its fault."""
    return f"{PREFIX}{check}" if injected else check


def injected_field(fault: InjectedFaultView, *, with_node: bool) -> Field:
    """Return the field of an injected fault, or why it is refused."""
    node = f"{fault.node}, " if with_node else ""
    text = f"{fault.check} on {node}{target_text(fault.target)}, by {fault.by}, until {api_time(fault.until)}"
    if fault.refusal:
        text = f"refused, no effect: {text}: {fault.refusal}"
        return Field("injected", text, name_style="warning")
    return Field("injected", f"for a rehearsal: {text}", name_style="suspect")


def mark_section(mark: MarkView) -> Section:
    """Return the section about a mark: its check, and the condition of its release."""
    device = f", as device {mark.device}" if mark.device else ""
    kind = mark_kind(mark.mark)
    target = mark.target if kind.requester == Requester.DOMAIN else target_text(mark.target)
    check = check_name(mark.check, injected=mark.injected)
    fields = []
    if mark.targets:
        fields.append(Field("targets", first_names(map(target_label, mark.targets))))
    if mark.component:
        fields.append(Field("component", mark.component))
    written = "" if mark.written else "; not written yet"
    fields.append(Field("since", time_and_age(mark.since, mark.age) + written))
    fields.append(wait_field(mark))
    heading = badge_heading(mark.mark, kind.style, f"{check} - {target}{device}")
    return Section(heading, tuple(fields))


def mark_fields(mark: MarkView, name: str, done: str = "set") -> Iterator[Field]:
    """Yield a mark and the condition of its release, in the card of its fault. name: of the mark, as text.
    done: how it came to be, once it is written.
    """
    device = f" of device {mark.device}" if mark.device else ""
    step = done if mark.written else "not written yet, requested"
    yield Field("mark", f"{name}{device}, {step} {time_and_age(mark.since, mark.age)}")
    yield wait_field(mark)


def wait_field(mark: MarkView) -> Field:
    """Return the field with the condition of the release of a mark."""
    wait = mark.wait
    until = f": {api_time(wait.until)}, in {format_duration(wait.seconds_left)}" if wait.until else ""
    return Field("state" if wait.on == "write" else "waiting for", f"{wait.message}{until}")


def topology_text(topology: TopologyView) -> str:
    """Return a topology: how many domains it has, by which labels, and which nodes lack them."""
    if not topology.keys:
        return f"{topology.topology} {count_noun(topology.domains, 'version')}"
    missing = "".join(f", {missing_label_text(item)}" for item in topology.missing_labels)
    domains = count_noun(topology.domains, "domain")
    return f"{topology.topology} {domains} by {topology_source(topology)}{missing}"


def topology_source(topology: TopologyView) -> str:
    """Return the source of a topology: labels, node locations of the policy, or reported versions."""
    if not topology.keys:
        return "versions that agents report"
    if topology.keys == (PLACES,):
        return "node locations of the policy"
    return f"label{'' if len(topology.keys) == 1 else 's'} {', '.join(topology.keys)}"


def missing_label_text(missing: MissingLabelView) -> str:
    """Return which nodes lack a label or a location, and the placeholders in it."""
    key = "a location" if missing.key == PLACES else missing.key
    verb = "lacks" if missing.nodes == 1 else "lack"
    nodes, names = count_noun(missing.nodes, "node"), names_text(missing.names, missing.nodes)
    placeholders = ", ".join(f"{value} on {count}" for value, count in missing.placeholders.items())
    return f"{nodes} {verb} {key} ({names}{placeholders and f'; placeholders: {placeholders}'})"


def suppressed_check_text(check: SuppressedCheckView) -> str:
    """Return a suppressed check, with the reason."""
    domain = f" on {check.domain} only" if check.domain else ""
    return f"{check.check} is suppressed{domain}: {check.reason}"


def repeat_offender_text(offender: RepeatOffenderView) -> str:
    """Return what to do about a repeat offender, with the reason."""
    expected = f"{offender.expected:.1f}" if offender.expected >= _LEAST_SHOWN else "less than 0.1"
    return (
        f"{offender.component} ({target_text(offender.target)}) failed {offender.faults} times in "
        f"{format_duration(offender.age)} (fleet average {expected}): replace it"
    )


def repeat_offenders_text(status: FleetStatus) -> str:
    """Return how many repeat offenders the fleet has, and the worst by name."""
    worst = ", ".join(
        f"{offender.component} in {offender.node} ({offender.faults} times)"
        for offender in status.repeat_offenders
    )
    omitted = status.repeat_offenders_omitted
    rest = f" and {omitted} more" if omitted else ""
    count = count_noun(len(status.repeat_offenders) + omitted, "component")
    return f"{count} to replace: {worst}{rest}"
