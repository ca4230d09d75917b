"""The view of nodeguard status. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.fleet_api.schema.capacity import MarkedCounts, WorkState
from nodeguard.fleet_api.schema.incident_summary import OmittedIncidents
from nodeguard.fleet_api.schema.replica import AgentCounts, PolicyView
from nodeguard.fleet_api.schema.status import FleetStatus, NodeCounts
from nodeguard.fleet_api.service_state import STANDALONE
from nodeguard.fleet_api.text.drain import drains_fields
from nodeguard.fleet_api.text.job import job_fields
from nodeguard.fleet_api.text.phrases import (
    budgets_text,
    dry_run_text,
    faulty_text,
    gpus_text,
    injected_field,
    refused_field,
    repeat_offenders_text,
    suppressed_check_text,
    topology_text,
    withheld_text,
)
from nodeguard.fleet_api.text.status_incidents import incident_entries
from nodeguard.fleet_api.text.wording import count_noun, first_names, format_age, time_left
from nodeguard.fleet_api.view import Field, Heading, Note, Row, Section, Subject, View, badge_heading
from nodeguard.judge.formatting import format_duration
from nodeguard.model.incident import IncidentState

# Seconds for which an ended incident is recorded, and the text where none is.
_DAY = 86_400.0
_CALM_DAY = "no fault in the past 24 h"

# Names of fields that a page shows in another way.
AGENTS, BUDGETS, GPUS, TOPOLOGIES, WITHHELD = "agents", "budgets", "GPUs", "topologies", "withheld"

# Facts that need no reaction, or that another line has.
_CALM_FACTS = frozenset({AGENTS, "nodes", "writing", TOPOLOGIES, BUDGETS, "leader"})


class StatusDetail(Struct, frozen=True):
    """How much of the status a view shows."""

    facts: bool = True
    """Whether it has the facts that need no reaction, such as the topologies and the leader."""
    entries: int = 1_000
    """Number of entries, each of a node or of a kind of incident, worst first."""
    notes: int = 1_000
    """Rows of each entry below its heading, the most important ones first."""


EVERYTHING = StatusDetail()


def status_view(status: FleetStatus, detail: StatusDetail = EVERYTHING) -> View:
    """Return the view: the headline with the facts, then the worst incidents, those of one node together."""
    obstacles = [replace(row, is_urgent=True) for row in _obstacles(status)]
    facts = [row for row in _facts(status) if detail.facts or row.name not in _CALM_FACTS or row.is_urgent]
    entries = incident_entries(status.worst, detail.notes)
    sections = [Section(headline(status), (*obstacles, *facts)), *entries[: detail.entries]]
    if rest := _rest(status, max(0, len(entries) - detail.entries), detail):
        sections.append(Section(None, (Note(rest, "dim"),)))
    return View(tuple(sections), _alert(status))


def _rest(status: FleetStatus, entries: int, detail: StatusDetail) -> str:
    """Return the command that shows what a view leaves out; empty if it shows everything. entries: that are
    left out, besides those that the status does not have.
    """
    omitted = status.worst_omitted + entries
    more = f"and {count_noun(omitted, 'more kind')} of incident: nodeguard get incidents" if omitted else ""
    if detail == EVERYTHING:
        return more
    return "; ".join(filter(None, (more, "nodeguard status -v shows everything")))


def _alert(status: FleetStatus) -> Heading | None:
    """Return that a replica cannot write, or sets no mark: the reason, and since when."""
    obstacle = status.obstacle
    if obstacle is not None and obstacle.kind != "standby":
        text = f"{obstacle.effect}, for {format_duration(obstacle.age)}: {obstacle.reason}."
        return badge_heading("blocked", "fatal", text)
    if status.frozen and status.replica.is_leader:
        return badge_heading("frozen", "fatal", f"{_frozen(status)}.")
    return None


def headline(status: FleetStatus) -> Heading:
    """Return the headline: the worst health, and how many nodes are unhealthy; on standby, the leader.
    Accepted injected faults are counted beside: they make no node unhealthy.
    """
    nodes = status.nodes
    counts = [
        (nodes.fatal, "fatal"),
        (nodes.suspect, "suspect"),
        (nodes.warning, "warning"),
        (nodes.unknown, "unknown"),
    ]
    unhealthy = [f"{count} {health}" for count, health in counts if count]
    text = f"{count_noun(status.agents.expected, 'node')}: {', '.join(unhealthy) or 'all checks passed'}"
    # The line of the nodes that are faulty in service has the others.
    if status.withheld.nodes > status.capacity.faulty:
        text += f"; {count_noun(status.withheld.marks, 'mark')} withheld"
    if status.injected_faults_accepted:
        text += f"; {count_noun(status.injected_faults_accepted, 'injected fault')}"
    if not status.agents.expected:
        text = "no agent has reported yet"
    if status.obstacle is not None and status.obstacle.kind == "standby":
        text += f". Standby for {format_duration(status.obstacle.age)}: {status.obstacle.reason}"
    worst = next((health for count, health in counts if count), "ok" if nodes.ok else "unknown")
    return badge_heading(worst, worst, f"{text}.")


def _obstacles(status: FleetStatus) -> Iterator[Row]:
    """Yield observe mode, the nodes that are faulty in service, the reasons that prevent new marks, and the
    problems of agents that report.
    """
    if status.policy.observe_only:
        due = "due yet" if status.pending.marks else "requested"
        of_what = "No mark of a real fault" if status.injected_faults_accepted else "No mark"
        text = f"OBSERVE MODE - no new mark is set. {dry_run_text(status.dry_run) or f'{of_what} is {due}'}."
        yield Note(text, "warning")
    if status.capacity.faulty:
        text, about = faulty_text(status.capacity), Subject("nodes", WorkState.FAULTY)
        yield Field("in service", text, style="fatal", name_style="fatal", about=about)
    if status.paused:
        yield Field("paused", f"no new mark is set: {status.paused}", name_style="suspect")
    if status.frozen and status.replica.is_leader and status.obstacle is not None:
        yield Field("frozen", _frozen(status), name_style="fatal")
    if status.policy.error:
        yield Field("policy", f"the new file is rejected: {status.policy.error}", name_style="fatal")
    for domain in status.degraded_domains:
        if domain.state == IncidentState.WITHHELD:
            text = f"{domain.domain} is degraded, and its mark is withheld: {domain.reason}"
            yield Field("domain", text, name_style="fatal")
    yield from _injected_faults(status)
    for check in status.suppressed_checks:
        yield Field("check", suppressed_check_text(check), name_style="suspect")
    yield from drains_fields(status)
    yield from job_fields(status.drained_jobs, status.drained_jobs_omitted, status.job_outcomes)
    yield from _reporting_problems(status)


def _frozen(status: FleetStatus) -> str:
    """Return that new marks are frozen, since when, and why."""
    age = f", for {format_duration(status.frozen_age)}" if status.frozen_age else ""
    return f"no new mark is set{age}: {status.frozen}"


def _injected_faults(status: FleetStatus) -> Iterator[Field]:
    """Yield the faults that operators injected, and those that are refused."""
    for fault in status.injected_faults:
        yield injected_field(fault, with_node=True)
    if status.injected_faults_omitted:
        more = count_noun(status.injected_faults_omitted, "more fault")
        yield Field("injected", f"{more}: see nodeguard get nodes", name_style="suspect")


# The obstacle of an aggregator that may not write a resource.
_OBSTACLES = {"nodes": "writes-refused", "leases": "api-refuses"}


def _reporting_problems(status: FleetStatus) -> Iterator[Field]:
    """Yield the rights that are missing, and the problems that prevent agents from reporting, and webhooks
    from receiving.
    """
    for refused in status.refused_requests:
        # The obstacle has the same error.
        if status.obstacle is not None and _OBSTACLES.get(refused.resource) == status.obstacle.kind:
            continue
        request = f"{refused.verb} {refused.resource}"
        text = f"cannot {request}, for {format_duration(refused.age)}: {refused.reason}"
        yield Field("rights", text, name_style="fatal")
    if status.connection_shortage:
        yield Field("connections", status.connection_shortage, name_style="fatal")
    if status.state_problem:
        yield Field("state", f"not stored: {status.state_problem}", name_style="fatal")
    if status.notification_problem:
        yield Field("webhooks", status.notification_problem, name_style="warning")
    if status.history_problem:
        yield Field("history", f"not written: {status.history_problem}", name_style="warning")
    for messages in status.refused_messages:
        yield refused_field(messages)
    if status.refused_omitted:
        nodes = count_noun(status.refused_omitted, "more node")
        yield Field("refused", f"messages of {nodes}: see nodeguard describe node")


def _facts(status: FleetStatus) -> Iterator[Field]:
    """Yield the facts: agents, nodes, marks, topologies, budgets, incidents, policy and leader."""
    yield Field(AGENTS, agents_text(status.agents))
    yield Field("nodes", _nodes(status.nodes))
    if gpus := gpus_text(status.capacity):
        yield Field(GPUS, gpus)
    marked = [
        _marked(mark, counts) for mark, counts in status.marked.items() if counts.nodes or counts.devices
    ]
    yield Field("advised" if is_advice(status) else "marked", "; ".join(marked) or "nothing")
    if status.withheld.marks:
        yield Field(WITHHELD, withheld_text(status), is_urgent=True)
    if status.pending.marks:
        marks = f"{count_noun(status.pending.marks, 'mark')} of {count_noun(status.pending.nodes, 'node')}"
        first = "" if status.pending.marks == 1 else "the first has "
        left = time_left(status.pending_seconds_left)
        yield Field("pending", f"{marks} in the grace period: {first}{left}", is_urgent=True)
    if status.being_written.marks:
        nodes = count_noun(status.being_written.nodes, "node")
        yield Field("writing", f"{count_noun(status.being_written.marks, 'mark')} of {nodes}")
    if status.would_mark.marks and not status.policy.observe_only:
        yield Field("dry run", f"{dry_run_text(status.dry_run)}; the checks are not enforced", is_urgent=True)
    # A version that all nodes have explains nothing: nodeguard get domains lists it.
    topologies = [topology for topology in status.topologies if topology.keys or topology.domains > 1]
    if topologies:
        yield Field(TOPOLOGIES, "; ".join(map(topology_text, topologies)))
    if status.domains:
        names = ", ".join(domain.domain for domain in status.degraded_domains)
        rest = sum(status.domains.values()) - len(status.degraded_domains)
        counts = ", ".join(f"{count} {state.phrase}" for state, count in status.domains.items())
        yield Field("domains", f"{counts}: {names}" + (f" and {rest} more" if rest else ""))
    if status.repeat_offenders:
        yield Field("replace", repeat_offenders_text(status), name_style="warning")
    budgets = budgets_text(status.budgets, status.budgets_omitted) if status.budgets else ""
    yield Field(BUDGETS, budgets or "none: there are no nodes")
    states = [f"{count} {state.phrase}" for state, count in status.incidents.items() if count]
    calm = [calm_text(status)] if status.latest_end is not None and is_calm(status) else []
    yield Field("incidents", "; ".join([", ".join(states) or "none", *calm]))
    if status.incidents_omitted.incidents:
        yield Field("omitted", _omitted(status.incidents_omitted), name_style="warning")
    yield Field("policy", f"{_mode(status.policy)}; {status.policy.file or 'built-in'}")
    yield Field("leader", _leader(status))


def is_advice(status: FleetStatus) -> bool:
    """Return whether marks are advice, as without a cluster."""
    return status.replica.leader == STANDALONE and not status.nodes.owned


def is_calm(status: FleetStatus) -> bool:
    """Return whether no incident is unresolved."""
    return not any(count for state, count in status.incidents.items() if state != IncidentState.RESOLVED)


def calm_text(status: FleetStatus) -> str:
    """Return since when no incident is unresolved. Ended ones are recorded for a day."""
    end, up = status.latest_end, status.replica.age
    if end is not None:
        subject = end.node or end.domain or end.resource
        return f"no fault for {format_duration(end.age)}; the latest: {end.cause} on {subject}"
    return f"no fault for {format_duration(up)}, since this aggregator started" if up < _DAY else _CALM_DAY


def agents_text(agents: AgentCounts) -> str:
    """Return how many of the expected agents report, and how many do not."""
    text = f"{agents.reported - agents.stale} of {agents.expected} reporting"
    text += f", {agents.stale} stale" if agents.stale else ""
    never = agents.not_reporting - agents.stale
    return text + (f", {never} without a report since this aggregator started" if never else "")


def _mode(policy: PolicyView) -> str:
    """Return the mode of a policy, and the checks for which rules set another."""
    if not policy.rules:
        return policy.mode
    rules = (("enforced", policy.enforced), ("observed", policy.observed))
    listed = "".join(f"; {mode}: {', '.join(checks)}" for mode, checks in rules if checks)
    return f"{policy.mode} by default{listed}"


def _omitted(omitted: OmittedIncidents) -> str:
    count = f"{count_noun(omitted.incidents, 'incident')} of {count_noun(omitted.nodes, 'node')}"
    return f"{count} over the limit: see the findings of {first_names(omitted.worst_nodes)}"


def _nodes(nodes: NodeCounts) -> str:
    by_health = {
        "ok": nodes.ok,
        "warning": nodes.warning,
        "suspect": nodes.suspect,
        "fatal": nodes.fatal,
        "unknown": nodes.unknown,
    }
    others = {
        "partially read": nodes.partially_read,
        "on hold": nodes.on_hold,
        "under maintenance": nodes.maintenance,
        "cordoned by operators": nodes.cordoned_by_user,
        **{f"owned by webhook {name}": count for name, count in nodes.owned.items()},
    }
    healths = [f"{count} {health}" for health, count in by_health.items() if count or health == "ok"]
    rest = [f"{count} {name}" for name, count in others.items() if count]
    return ", ".join(healths) + (f"; {', '.join(rest)}" if rest else "")


def _marked(mark: str, counts: MarkedCounts) -> str:
    parts = [count_noun(counts.nodes, "node")] if counts.nodes else []
    parts += [count_noun(counts.devices, "GPU")] if counts.devices else []
    return f"{mark} {' and '.join(parts)}"


def _leader(status: FleetStatus) -> str:
    replica = status.replica
    if replica.leader == STANDALONE:
        leader = STANDALONE
    else:
        leader = (replica.leader or "none") + (" (this replica)" if replica.is_leader else "")
    planned = "no plan yet" if replica.plan_age is None else f"planned {format_age(replica.plan_age)}"
    up = f"{', ' if replica.is_leader else '; this replica '}up {format_duration(replica.age)}, {planned}"
    version = f"; nodeguard {replica.nodeguard_version}" if replica.nodeguard_version else ""
    return f"{leader}{up}{version}"
