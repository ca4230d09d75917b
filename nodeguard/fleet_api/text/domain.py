"""The view of nodeguard describe domain. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from nodeguard.fleet_api.schema.domain import DomainList, DomainSummary, DomainView, FaultClassView, VoteView
from nodeguard.fleet_api.text.job import job_fields
from nodeguard.fleet_api.text.phrases import (
    STYLES,
    guidance_section,
    missing_label_text,
    suppressed_check_text,
    topology_source,
    topology_text,
)
from nodeguard.fleet_api.text.wording import (
    age_range,
    api_time,
    count_noun,
    first_names,
    names_text,
    target_text,
    time_and_age,
)
from nodeguard.fleet_api.view import Field, Heading, Note, Row, Section, Subject, View, badge_heading, see
from nodeguard.judge.formatting import format_duration
from nodeguard.model.diagnosis import VERSION_TOPOLOGIES
from nodeguard.model.incident import IncidentState

# Effect of the mark of a degraded domain.
_EFFECTS = {
    IncidentState.MARKED: "new gang work is kept off the domain; single-node work may run",
    IncidentState.WITHHELD: "gang work is not kept off it",
    IncidentState.PENDING: "it is being written",
    IncidentState.ADVISED: "advice: keep new gang work off the domain; single-node work may run",
    IncidentState.DRY_RUN: "gang work would be kept off it; the topology is not enforced",
}

# What is missing without a topology of shared hardware, and how to name it.
_NO_SHARED_HARDWARE = (
    Field(
        "missing",
        "racks, switches and power: no node has their labels, and the policy no nodeLocations",
        name_style="warning",
    ),
    Field(
        "to do",
        "set nodeLocations: racks.csv in the policy, a table with the columns node,rack,power; see "
        "docs/concepts/failure-domains.md",
    ),
)


def domain_list_view(response: DomainList) -> View:
    """Return the view about topologies and suppressed checks, which `nodeguard get domains` prints first."""
    degraded = sum(1 for domain in response.domains if domain.state is not None)
    faulty = sum(1 for domain in response.domains if domain.state is None and domain.voters)
    text = f"{count_noun(degraded, 'domain')} degraded" if degraded else "no domain is degraded"
    if faulty:
        text += f", {faulty}{' more' if degraded else ''} {'shows' if faulty == 1 else 'show'} a fault"
    if response.suppressed_checks:
        text += f"; {count_noun(len(response.suppressed_checks), 'check')} suppressed"
    style = "suspect" if degraded else "warning" if response.suppressed_checks else "ok"
    fields = [Field("topology", topology_text(topology)) for topology in response.topologies]
    if all(topology.topology in VERSION_TOPOLOGIES for topology in response.topologies):
        fields += _NO_SHARED_HARDWARE
        if style == "ok":
            style = "unknown"
            text = text if response.topologies else "there are no failure domains"
            text += "; no shared hardware is named"
    fields += [
        Field("check", suppressed_check_text(check), name_style="warning")
        for check in response.suppressed_checks
    ]
    return View((Section(badge_heading(style, style, f"{text}."), tuple(fields)),))


def domain_view(domain: DomainView) -> View:
    """Return the view: the state, what to do, the evidence, the nodes that show the fault, and the domains
    inside.
    """
    state, evidence = tuple(_state(domain)), tuple(_evidence(domain))
    if domain.guidance is None:
        sections = [Section(_headline(domain), (*state, *evidence))]
    else:
        advice = guidance_section(domain.guidance)
        sections = [Section(_headline(domain), state), advice, Section(None, evidence)]
    if domain.votes:
        votes: list[Row] = [*_votes(domain.votes)]
        if domain.votes_omitted:
            votes.append(Note(f"and {domain.votes_omitted} more nodes"))
        sections.append(Section(None, tuple(votes), "list"))
    if domain.children:
        children = [_child(child) for child in domain.children]
        if domain.children_omitted:
            children.append(Note(f"and {domain.children_omitted} more inside"))
        sections.append(Section(None, tuple(children), "list"))
    return View(tuple(sections))


def domain_state(domain: DomainSummary) -> tuple[str, str]:
    """Return the state of a domain in a list, and its style."""
    if domain.state is not None:
        return f"degraded, {domain.state.phrase}", STYLES[domain.state]
    return ("not degraded", "warning") if domain.voters else ("ok", "ok")


def _headline(domain: DomainView) -> Heading:
    if domain.state is not None:
        evidence = domain.evidence
        text = evidence if evidence.startswith(domain.domain) else f"{domain.domain}: {evidence}"
        return badge_heading("suspect", "suspect", f"{text}.")
    faults = [fault for fault in domain.classes if fault.voters]
    if domain.suppressed_checks:
        checks = count_noun(len(domain.suppressed_checks), "check")
        return badge_heading("warning", "warning", f"{domain.domain}: {checks} suppressed on it.")
    if not faults:
        return badge_heading("ok", "ok", f"{domain.domain}: no shared fault.")
    worst = max(faults, key=lambda fault: fault.voters / max(1, fault.threshold))
    text = f"{worst.voters} of {domain.voting} nodes {worst.symptom} within {format_duration(worst.window)}"
    return badge_heading("warning", "warning", f"{domain.domain}: not degraded; {text}.")


def _state(domain: DomainView) -> Iterator[Field]:
    """Yield what is done about the domain, since when, and the jobs that it hits."""
    if domain.state is not None:
        yield from _degraded(domain, domain.state)
    elif domain.marked:
        text = f"still on {count_noun(domain.marked, 'node')}; it is being removed"
        yield Field("mark", text, name_style="warning")
    for check in domain.suppressed_checks:
        yield Field("check", suppressed_check_text(check), name_style="warning")
    yield from job_fields(domain.jobs, domain.jobs_omitted, domain.job_outcomes)


def _evidence(domain: DomainView) -> Iterator[Field]:
    """Yield how many of its nodes and of its siblings show a fault, and which nodes it has."""
    if domain.state is not None and domain.diagnosed_at:
        count = f"{domain.diagnosed_voters} of {count_noun(domain.diagnosed_members, 'node')}"
        now = f"{domain.showing_now} show it now" if domain.showing_now != 1 else "1 shows it now"
        yield Field("counted", f"{count} by {api_time(domain.diagnosed_at)}; {now}")
    if domain.state is not None and domain.began:
        yield Field("first seen", time_and_age(domain.began, domain.began_age))
    yield from _faults(domain)
    if domain.siblings:
        nodes = count_noun(domain.siblings_members, "node")
        same = f" with {nodes}: {domain.siblings_voters} show the same fault"
        siblings = count_noun(domain.siblings, "domain")
        yield Field("siblings", f"{siblings}{same if domain.fault_classes or domain.votes else ''}")
    if domain.parent is not None:
        yield Field("part of", _parent(domain.parent), about=Subject("domain", domain.parent.domain))
    yield Field("members", f"{count_noun(domain.members, 'node')}, {domain.voting} may vote")
    for group in domain.member_groups:
        nodes = f"{count_noun(group.nodes, 'node')} ({names_text(group.names, group.nodes)})"
        yield Field("" if group.can_vote else "no vote", f"{nodes}: {group.reason}")
    yield Field("source", topology_source(domain.topology))
    for missing in domain.topology.missing_labels:
        yield Field("missing", missing_label_text(missing), name_style="warning")
    if domain.incident:
        yield see(Subject("incident", domain.incident))


def _degraded(domain: DomainView, state: IncidentState) -> Iterator[Field]:
    reason = f": {domain.reason}" if domain.reason else ""
    effect = _EFFECTS[state]
    if state == IncidentState.DRY_RUN and domain.reason:
        effect = "the topology is not enforced; if it were, the mark would be withheld"
    marked = f" on {count_noun(domain.marked, 'node')}" if domain.marked else ""
    style = STYLES[state] if state == IncidentState.WITHHELD else "dim"
    yield Field("mark", f"{state.phrase}{marked}, {effect}{reason}", name_style=style)
    times = f"; {domain.times_degraded} times recently" if domain.times_degraded > 1 else ""
    yield Field("degraded", time_and_age(domain.since, domain.age) + times)
    if domain.guidance is None:
        yield Field("ends", f"when {domain.clears_when}")


def _faults(domain: DomainView) -> Iterator[Field]:
    """Yield how many nodes have recently begun to show each fault class, or the thresholds where none has.

    The votes for a degraded domain may be older.
    """
    shown = [fault for fault in domain.classes if fault.voters]
    for fault in shown:
        count = (
            f"{fault.voters} of {domain.voting} {fault.symptom} in the last {format_duration(fault.window)}"
        )
        yield Field("fault", f"{count} ({fault.fault_class}); {_threshold(fault, domain)}")
    if not shown and domain.classes and domain.state is None:
        thresholds = "; ".join(
            f"{fault.fault_class}: {_threshold(fault, domain)}" for fault in domain.classes
        )
        yield Field("thresholds", thresholds)


def _threshold(fault: FaultClassView, domain: DomainView) -> str:
    """Return how many nodes make the domain degraded, and which of the two conditions decides that."""
    if fault.voters >= fault.threshold and domain.state is None:
        children = [child.domain for child in domain.children if child.state is not None]
        if children:
            return f"threshold {fault.threshold}, reported as {first_names(children)}"
        return f"threshold {fault.threshold}, not confirmed yet, or nearly all in one part of it"
    if fault.threshold > domain.voting:
        return f"threshold over {domain.voting}: too few nodes for a diagnosis"
    if fault.chance_threshold > fault.share_threshold:
        return f"threshold {fault.threshold} (fewer may be chance)"
    return f"threshold {fault.threshold} (minimum share)"


def _votes(votes: Iterable[VoteView]) -> Iterator[Field]:
    """Yield what each node shows, and once what several nodes show, with their names below it."""
    groups: dict[tuple[str, ...], list[VoteView]] = {}
    for vote in votes:
        groups.setdefault((vote.check, vote.target, vote.message), []).append(vote)
    for same in groups.values():
        nodes = tuple(Subject("node", vote.node) for vote in same)
        if len(same) == 1:
            yield Field(same[0].node, _vote(same), about=nodes[0])
        else:
            yield Field(f"{len(same)} nodes", _vote(same))
            yield Field("", ", ".join(node.name for node in nodes), "dim", subjects=nodes)


def _vote(same: Sequence[VoteView]) -> str:
    """Return what some nodes show alike."""
    vote, ages = same[0], [vote.age for vote in same if vote.at]
    when = age_range(min(ages), max(ages)) if ages else "before this aggregator started"
    if not vote.check:
        return f"{when}; the fault is over"
    message = f": {vote.message}" if vote.message else ""
    return f"{vote.check} on {target_text(vote.target)}, {when}{message}"


def _child(domain: DomainSummary) -> Note:
    text = f"{domain.domain}: {domain.voters} of {count_noun(domain.members, 'node')}"
    about = Subject("domain", domain.domain)
    if domain.state is None:
        return Note(f"{text} show a fault", about=about)
    reason = f": {domain.reason}" if domain.reason else ""
    if domain.reason and domain.state == IncidentState.DRY_RUN:
        reason = f", would be withheld: {domain.reason}"
    classes = ", ".join(domain.fault_classes)
    return Note(f"{text}, {classes}, {domain.state.phrase}{reason}", STYLES[domain.state], about=about)


def _parent(domain: DomainSummary) -> str:
    state = f", degraded ({domain.state.phrase})" if domain.state is not None else ""
    return f"{domain.domain}: {domain.voters} of {count_noun(domain.members, 'node')} show a fault{state}"
