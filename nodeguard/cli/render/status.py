"""The page of nodeguard status. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from nodeguard.cli.render.fleet_text import (
    budget_text,
    count_noun,
    dry_run_text,
    first_names,
    item_line,
    refused_line,
    repeat_offenders_text,
    state_text,
    subject_text,
    suppressed_check_text,
    time_left,
    title_line,
    topology_text,
)
from nodeguard.cli.render.terminal import StyledLine, StyledText
from nodeguard.cli.timestamps import format_age
from nodeguard.fleet_api.schema.status import (
    AgentCounts,
    FleetStatus,
    IncidentSummary,
    MarkedCounts,
    NodeCounts,
    OmittedIncidents,
    PolicyView,
)
from nodeguard.fleet_api.service_state import STANDALONE
from nodeguard.judge.formatting import format_duration
from nodeguard.model.incident import IncidentState


def status_lines(one: FleetStatus) -> list[StyledLine]:
    """The lines of the page."""
    lines = [_headline(one), *_alarms(one), *_unheard(one), *_facts(one)]
    for each in one.worst:
        lines += [StyledLine(), *_incident(each)]
    return lines


def _headline(one: FleetStatus) -> StyledLine:
    nodes = one.nodes
    counts = [
        (nodes.fatal, "fatal"),
        (nodes.suspect, "suspect"),
        (nodes.warning, "warning"),
        (nodes.unknown, "unknown"),
    ]
    wrong = [f"{number} {word}" for number, word in counts if number]
    said = f"{count_noun(one.agents.expected, 'node')}: {', '.join(wrong) or 'nothing wrong found'}"
    if one.withheld.marks:
        said += f"; {count_noun(one.withheld.marks, 'mark')} withheld"
    if not one.agents.expected:
        said = "no node is known yet"
    word = next((word for number, word in counts if number), "ok" if nodes.ok else "unknown")
    return title_line(word, word, f"{said}.")


def _alarms(one: FleetStatus) -> Iterator[StyledLine]:
    """The mode where nothing is enforced, and what keeps nodeguard from its work."""
    if one.policy.observe_only:
        would = dry_run_text(one.dry_run) or f"No mark is {'due yet' if one.pending.marks else 'asked for'}"
        text = f"OBSERVE MODE - no new mark is set. {would}."
        yield StyledLine(text=text, style="warning")
    if one.paused:
        yield item_line("paused", f"nothing new is marked: {one.paused}", name_style="suspect")
    if one.frozen:
        yield item_line("frozen", f"nothing new is marked: {one.frozen}", name_style="fatal")
    if one.replica.inactive_reason and one.replica.is_leader:
        yield item_line("waiting", f"nothing is written: {one.replica.inactive_reason}", name_style="suspect")
    if one.policy.error:
        yield item_line("policy", f"kept out: {one.policy.error}", name_style="fatal")
    for each in one.degraded_domains:
        if each.state == IncidentState.WITHHELD:
            yield item_line(
                "domain", f"{each.domain} is to blame, and not marked: {each.reason}", name_style="fatal"
            )
    for check in one.suppressed_checks:
        yield item_line("check", suppressed_check_text(check), name_style="suspect")


def _unheard(one: FleetStatus) -> Iterator[StyledLine]:
    """What keeps agents from reporting."""
    if one.connection_shortage:
        yield item_line("open files", one.connection_shortage, name_style="fatal")
    for messages in one.refused_messages:
        yield refused_line(messages)
    if one.refused_omitted:
        yield item_line(
            "refused",
            f"messages of {count_noun(one.refused_omitted, 'more node')}: see nodeguard explain node",
        )


def _facts(one: FleetStatus) -> Iterator[StyledLine]:
    yield item_line("agents", _agents(one.agents))
    yield item_line("nodes", _nodes(one.nodes))
    marked = [_marked(mark, each) for mark, each in one.marked.items() if each.nodes or each.devices]
    yield item_line(
        "advised" if one.replica.leader == STANDALONE else "marked", "; ".join(marked) or "nothing"
    )
    if one.withheld.marks:
        reasons = "; ".join(f"{each.reason} ({each.marks})" for each in one.reasons)
        yield item_line(
            "withheld",
            f"{count_noun(one.withheld.marks, 'mark')} of {count_noun(one.withheld.nodes, 'node')}: {reasons}",
        )
    if one.pending.marks:
        marks = f"{count_noun(one.pending.marks, 'mark')} of {count_noun(one.pending.nodes, 'node')}"
        first = "" if one.pending.marks == 1 else "the first has "
        yield item_line(
            "pending", f"{marks} in the grace period: {first}{time_left(one.pending_seconds_left)}"
        )
    if one.would_mark.marks and not one.policy.observe_only:
        yield item_line("dry run", f"{dry_run_text(one.dry_run)}; the checks are not enforced")
    if one.topologies:
        yield item_line("views", "; ".join(map(topology_text, one.topologies)))
    if one.domains:
        names = ", ".join(each.domain for each in one.degraded_domains)
        rest = sum(one.domains.values()) - len(one.degraded_domains)
        counts = ", ".join(f"{number} {each.phrase}" for each, number in one.domains.items())
        yield item_line("domains", f"{counts}: {names}" + (f" and {rest} more" if rest else ""))
    if one.repeat_offenders:
        yield item_line("lemons", repeat_offenders_text(one), name_style="warning")
    more = f" and {one.budgets_omitted} more that are half full" if one.budgets_omitted else ""
    yield item_line("budgets", ", ".join(map(budget_text, one.budgets)) + more or "none: there are no nodes")
    states = [f"{number} {each.phrase}" for each, number in one.incidents.items() if number]
    yield item_line("incidents", ", ".join(states) or "none")
    if one.incidents_omitted.incidents:
        yield item_line("left out", _left_out(one.incidents_omitted), name_style="warning")
    yield item_line("policy", f"{_mode(one.policy)}; {one.policy.file or 'built in, no file'}")
    yield item_line("leader", _leader(one))


def _agents(one: AgentCounts) -> str:
    """How many agents report, and how many do not: all that are expected together."""
    said = f"{one.expected} expected, {one.reported - one.stale} reporting"
    said += f", {one.stale} stale" if one.stale else ""
    never = one.not_reporting - one.stale
    return said + (f", {never} without a report since this aggregator started" if never else "")


def _mode(one: PolicyView) -> str:
    """The mode of a policy, and the checks for which rules set another."""
    if not one.rules:
        return one.mode
    rules = (("enforced", one.enforced), ("observed", one.observed))
    said = "".join(f"; {word}: {', '.join(checks)}" for word, checks in rules if checks)
    return f"{one.mode} by default{said}"


def _left_out(left_out: OmittedIncidents) -> str:
    count = f"{count_noun(left_out.incidents, 'incident')} of {count_noun(left_out.nodes, 'node')}"
    return f"{count}, for which there is no room: see the findings of {first_names(left_out.worst_nodes)}"


def _nodes(nodes: NodeCounts) -> str:
    health = ("ok", "warning", "suspect", "fatal", "unknown")
    said = [f"{getattr(nodes, word)} {word}" for word in health if getattr(nodes, word) or word == "ok"]
    others = {
        "blind": "not read in part",
        "held": "on hold",
        "maintenance": "under maintenance",
        "out": "cordoned by people",
    }
    beside = [f"{getattr(nodes, word)} {text}" for word, text in others.items() if getattr(nodes, word)]
    return ", ".join(said) + (f"; {', '.join(beside)}" if beside else "")


def _marked(name: str, one: MarkedCounts) -> str:
    what = [count_noun(one.nodes, "node")] if one.nodes else []
    what += [count_noun(one.devices, "GPU")] if one.devices else []
    return f"{name} {' and '.join(what)}"


def _leader(one: FleetStatus) -> str:
    replica = one.replica
    if replica.leader == STANDALONE:
        who = STANDALONE
    else:
        who = (replica.leader or "none") + (" (this one)" if replica.is_leader else "")
    planned = "no plan yet" if replica.plan_age is None else f"planned {format_age(replica.plan_age)}"
    up = f"{', ' if replica.is_leader else '; this one '}up {format_duration(replica.age)}, {planned}"
    version = f"; nodeguard {replica.nodeguard_version}" if replica.nodeguard_version else ""
    return f"{who}{up}{version}"


# What is done about an incident that says nothing else.
_KEPT = {IncidentState.MARKED: "work is kept away", IncidentState.ADVISED: "advice: keep work away"}


def _incident(one: IncidentSummary) -> Iterator[StyledLine]:
    word = one.health.value
    alike = f"; {one.similar} more alike" if one.similar else ""
    says = one.summary or _KEPT.get(one.state, "")
    known = f" (acknowledged: {one.acknowledged})" if one.acknowledged else ""
    head = (StyledText(f"{word.upper():<7}", word), StyledText("  "))
    cause = f"{one.cause}, {state_text(one.state, one.seconds_left)}{known}"
    if not (one.node or one.domain):
        cause = "suppressed"
    text = f"{subject_text(one.node, one.domain, one.resource)}: {cause}, {format_duration(one.age)} old"
    yield StyledLine(head, text, "strong")
    of = (
        f"{one.domain}: "
        if one.domain
        else f"{subject_text(one.node, one.domain, one.resource)} is suppressed: "
    )
    yield StyledLine((StyledText(" " * 9),), f"{says.removeprefix(of)}{alike}")
    yield StyledLine((StyledText(" " * 9),), f"nodeguard explain incident {one.name}", "dim")
