"""The pages of what nodes share: the views and the domains of note, and one domain. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from nodeguard.cli.render.fleet_text import (
    STYLES,
    count_noun,
    first_names,
    item_line,
    missing_label_text,
    names_text,
    suppressed_check_text,
    target_text,
    time_and_age,
    title_line,
    topology_source,
    topology_text,
)
from nodeguard.cli.render.terminal import StyledLine, StyledText
from nodeguard.cli.timestamps import format_age
from nodeguard.fleet_api.schema.domain import (
    DomainList,
    DomainSummary,
    DomainView,
    FaultClassView,
    VoteView,
)
from nodeguard.judge.formatting import format_duration
from nodeguard.model.incident import IncidentState

# What becomes of a domain that is to blame.
_MEANS = {
    IncidentState.MARKED: "gangs are kept off all of it; what runs on a single node may fill it",
    IncidentState.WITHHELD: "gangs are not kept off it",
    IncidentState.ADVISED: "keep gangs off all of it; work on a single node may fill it",
    IncidentState.DRY_RUN: "gangs would be kept off it; its view is not enforced",
}


def domain_list_lines(one: DomainList) -> list[StyledLine]:
    """The views, the checks that are held, and the domains of which there is anything to tell."""
    blamed = sum(1 for each in one.domains if each.state is not None)
    shows = len(one.domains) + one.omitted - blamed
    said = f"{count_noun(blamed, 'domain')} to blame" if blamed else "no domain is to blame"
    said += f", {shows}{' more' if blamed else ''} show{'s' if shows == 1 else ''} something" if shows else ""
    said += f"; {count_noun(len(one.suppressed_checks), 'check')} suppressed" if one.suppressed_checks else ""
    style = "suspect" if blamed else "warning" if one.suppressed_checks else "ok"
    lines = [title_line(style, style, f"{said}.")]
    if not one.topologies:
        lines.append(
            item_line("views", "none: no label and no place tells what nodes share; see docs/policy.md")
        )
    lines += [item_line("view", topology_text(each)) for each in one.topologies]
    lines += [
        item_line("check", suppressed_check_text(each), name_style="warning")
        for each in one.suppressed_checks
    ]
    if one.domains:
        lines.append(StyledLine())
        lines += [_line(each) for each in one.domains]
    if one.omitted:
        lines.append(StyledLine(text=f"and {one.omitted} more"))
    return lines


def domain_lines(one: DomainView) -> list[StyledLine]:
    """One domain in full."""
    lines = [_headline(one), *_facts(one)]
    if one.votes:
        lines.append(StyledLine())
        lines += [item_line(each.node, _vote(each)) for each in one.votes]
        lines += [StyledLine(text=f"  and {one.votes_omitted} more nodes")] if one.votes_omitted else []
    if one.children:
        lines.append(StyledLine())
        lines += [_line(each) for each in one.children]
        lines += (
            [StyledLine(text=f"  and {one.children_omitted} more beneath it")] if one.children_omitted else []
        )
    return lines


def _headline(one: DomainView) -> StyledLine:
    if one.state is not None:
        said = one.evidence if one.evidence.startswith(one.domain) else f"{one.domain}: {one.evidence}"
        return title_line("suspect", "suspect", f"{said}.")
    shown = [each for each in one.classes if each.voters]
    if one.suppressed_checks:
        return title_line(
            "warning",
            "warning",
            f"{one.domain}: {count_noun(len(one.suppressed_checks), 'check')} suppressed on it.",
        )
    if not shown:
        return title_line("ok", "ok", f"{one.domain}: none of its nodes shows what they might share.")
    worst = max(shown, key=lambda each: each.voters / max(1, each.threshold))
    said = f"{worst.voters} of {one.voting} nodes {worst.symptom} within {format_duration(worst.window)}"
    return title_line("warning", "warning", f"{one.domain}: not to blame; {said}.")


def _facts(one: DomainView) -> Iterator[StyledLine]:
    if one.state is not None:
        yield from _blamed(one, one.state)
    for each in one.suppressed_checks:
        yield item_line("check", suppressed_check_text(each), name_style="warning")
    yield from _shown(one)
    if one.siblings:
        same = f", of whose {count_noun(one.siblings_members, 'node')} {one.siblings_voters} show the same"
        yield item_line(
            "beside", f"{count_noun(one.siblings, 'domain')}{same if one.fault_classes or one.votes else ''}"
        )
    if one.parent is not None:
        yield item_line("part of", _counted(one.parent))
    yield item_line("members", f"{count_noun(one.members, 'node')}, of which {one.voting} may vote")
    for other in one.member_groups:
        who = f"{count_noun(other.nodes, 'node')} ({names_text(other.names, other.nodes)})"
        yield item_line("" if other.can_vote else "no vote", f"{who}: {other.reason}")
    yield item_line("known by", topology_source(one.topology))
    for lack in one.topology.missing_labels:
        yield item_line("lacking", missing_label_text(lack), name_style="warning")
    if one.incident:
        yield item_line("more", f"nodeguard explain incident {one.incident}", "dim")


def _blamed(one: DomainView, state: IncidentState) -> Iterator[StyledLine]:
    why = f": {one.reason}" if one.reason else ""
    means = _MEANS[state]
    if state == IncidentState.DRY_RUN and one.reason:
        means = "its view is not enforced; if it were, gangs would not be kept off it"
    marked = f" on {count_noun(one.marked, 'node')}" if one.marked else ""
    style = STYLES[state] if state == IncidentState.WITHHELD else "dim"
    yield item_line("mark", f"{state.phrase}{marked}, {means}{why}", name_style=style)
    times = f"; {one.times_degraded} times lately" if one.times_degraded > 1 else ""
    yield item_line("blamed", time_and_age(one.since, one.age) + times)
    if one.began:
        yield item_line("began", time_and_age(one.began, one.began_age))
    yield item_line("ends", one.clears_when.removeprefix("over "))


def _shown(one: DomainView) -> Iterator[StyledLine]:
    """What it shows of each class of faults, or what it would take where it shows nothing."""
    shown = [each for each in one.classes if each.voters or each.fault_class in one.fault_classes]
    for each in shown:
        within = f"within {format_duration(each.window)} ({each.fault_class})"
        yield item_line(
            "shows", f"{each.voters} of {one.voting} {each.symptom} {within}; it takes {_needs(each, one)}"
        )
    if not shown and one.classes:
        yield item_line(
            "it takes", "; ".join(f"{each.fault_class}: {_needs(each, one)}" for each in one.classes)
        )


def _needs(one: FaultClassView, of: DomainView) -> str:
    """How many nodes it takes to be blamed, and which of the two conditions makes it so."""
    if one.voters >= one.threshold and of.state is None:
        told = [each.domain for each in of.children if each.state is not None]
        alone = "it has yet to settle, or a part of it has nearly all"
        return f"{one.threshold}, but {f'it is told of as {first_names(told)}' if told else alone}"
    if one.threshold > of.voting:
        return f"more than {of.voting}, so it is too small to be blamed for it"
    if one.chance_threshold > one.share_threshold:
        return f"{one.threshold}, as fewer may be chance"
    return f"{one.threshold}, as fewer are too small a part"


def _vote(one: VoteView) -> str:
    when = format_age(one.age) if one.at else "before this aggregator began"
    if not one.check:
        return f"{when}; it does not show it any more"
    message = f": {one.message}" if one.message else ""
    return f"{one.check} on {target_text(one.target)}, {when}{message}"


def _line(one: DomainSummary) -> StyledLine:
    """A domain in a list."""
    said = f"{one.domain}: {one.voters} of {count_noun(one.members, 'node')}"
    if one.state is None:
        return StyledLine((StyledText("  "),), f"{said} show something")
    why = f": {one.reason}" if one.reason else ""
    if one.reason and one.state == IncidentState.DRY_RUN:
        why = f", would be withheld: {one.reason}"
    kinds = ", ".join(one.fault_classes)
    return StyledLine((StyledText("  "),), f"{said}, {kinds}, {one.state.phrase}{why}", STYLES[one.state])


def _counted(one: DomainSummary) -> str:
    state = f", to blame ({one.state.phrase})" if one.state is not None else ""
    return f"{one.domain}: {one.voters} of {count_noun(one.members, 'node')} show something{state}"
