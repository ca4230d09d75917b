"""The pages of what nodes share: the views and the domains of note, and one domain. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from nodeguard.cli.moments import ago
from nodeguard.cli.render.domain_words import held, known_by, lacking, named, view
from nodeguard.cli.render.fleet_words import STYLES, item, many, moment, some, title, where
from nodeguard.cli.render.page import Line, Words
from nodeguard.fleet_api.domain_forms import (
    ClassTold,
    DomainLine,
    DomainList,
    DomainPage,
    VoteTold,
)
from nodeguard.judge.words import span
from nodeguard.model.incident import State

# What becomes of a domain that is to blame.
_MEANS = {
    State.MARKED: "gangs are kept off all of it; what runs on a single node may fill it",
    State.WITHHELD: "gangs are not kept off it",
    State.ADVISED: "keep gangs off all of it; work on a single node may fill it",
    State.DRY_RUN: "gangs would be kept off it; its view is not enforced",
}


def domains_page(one: DomainList) -> list[Line]:
    """The views, the checks that are held, and the domains of which there is anything to tell."""
    blamed = sum(1 for each in one.domains if each.state is not None)
    shows = len(one.domains) + one.more - blamed
    said = f"{many(blamed, 'domain')} to blame" if blamed else "no domain is to blame"
    said += f", {shows}{' more' if blamed else ''} show{'s' if shows == 1 else ''} something" if shows else ""
    said += f"; {many(len(one.held), 'check')} suppressed" if one.held else ""
    style = "suspect" if blamed else "warning" if one.held else "ok"
    lines = [title(style, style, f"{said}.")]
    if not one.views:
        lines.append(item("views", "none: no label and no place tells what nodes share; see docs/policy.md"))
    lines += [item("view", view(each)) for each in one.views]
    lines += [item("check", held(each), name_style="warning") for each in one.held]
    if one.domains:
        lines.append(Line())
        lines += [_line(each) for each in one.domains]
    if one.more:
        lines.append(Line(text=f"and {one.more} more"))
    return lines


def domain_page(one: DomainPage) -> list[Line]:
    """One domain in full."""
    lines = [_headline(one), *_facts(one)]
    if one.votes:
        lines.append(Line())
        lines += [item(each.node, _vote(each)) for each in one.votes]
        lines += [Line(text=f"  and {one.votes_more} more nodes")] if one.votes_more else []
    if one.children:
        lines.append(Line())
        lines += [_line(each) for each in one.children]
        lines += [Line(text=f"  and {one.children_more} more beneath it")] if one.children_more else []
    return lines


def _headline(one: DomainPage) -> Line:
    if one.state is not None:
        said = one.says if one.says.startswith(one.domain) else f"{one.domain}: {one.says}"
        return title("suspect", "suspect", f"{said}.")
    shown = [each for each in one.classes if each.voters]
    if one.held:
        return title("warning", "warning", f"{one.domain}: {many(len(one.held), 'check')} suppressed on it.")
    if not shown:
        return title("ok", "ok", f"{one.domain}: none of its nodes shows what they might share.")
    worst = max(shown, key=lambda each: each.voters / max(1, each.needs))
    said = f"{worst.voters} of {one.voting} nodes {worst.says} within {span(worst.within)}"
    return title("warning", "warning", f"{one.domain}: not to blame; {said}.")


def _facts(one: DomainPage) -> Iterator[Line]:
    if one.state is not None:
        yield from _blamed(one, one.state)
    for each in one.held:
        yield item("check", held(each), name_style="warning")
    yield from _shown(one)
    if one.siblings:
        same = f", of whose {many(one.siblings_members, 'node')} {one.siblings_voters} show the same"
        yield item("beside", f"{many(one.siblings, 'domain')}{same if one.kinds or one.votes else ''}")
    if one.parent is not None:
        yield item("part of", _counted(one.parent))
    yield item("members", f"{many(one.members, 'node')}, of which {one.voting} may vote")
    for other in one.others:
        who = f"{many(other.nodes, 'node')} ({named(other.names, other.nodes)})"
        yield item("" if other.votes else "no vote", f"{who}: {other.why}")
    yield item("known by", known_by(one.view))
    for lack in one.view.lacks:
        yield item("lacking", lacking(lack), name_style="warning")
    if one.incident:
        yield item("more", f"nodeguard explain incident {one.incident}", "dim")


def _blamed(one: DomainPage, state: State) -> Iterator[Line]:
    why = f": {one.why}" if one.why else ""
    means = _MEANS[state]
    if state == State.DRY_RUN and one.why:
        means = "its view is not enforced; if it were, gangs would not be kept off it"
    marked = f" on {many(one.marked, 'node')}" if one.marked else ""
    style = STYLES[state] if state == State.WITHHELD else "dim"
    yield item("mark", f"{state.words}{marked}, {means}{why}", name_style=style)
    times = f"; {one.times} times lately" if one.times > 1 else ""
    yield item("blamed", moment(one.since, one.age) + times)
    if one.began:
        yield item("began", moment(one.began, one.began_age))
    yield item("ends", one.until.removeprefix("over "))


def _shown(one: DomainPage) -> Iterator[Line]:
    """What it shows of each class of faults, or what it would take where it shows nothing."""
    shown = [each for each in one.classes if each.voters or each.kind in one.kinds]
    for each in shown:
        within = f"within {span(each.within)} ({each.kind})"
        yield item(
            "shows", f"{each.voters} of {one.voting} {each.says} {within}; it takes {_needs(each, one)}"
        )
    if not shown and one.classes:
        yield item("it takes", "; ".join(f"{each.kind}: {_needs(each, one)}" for each in one.classes))


def _needs(one: ClassTold, of: DomainPage) -> str:
    """How many nodes it takes to be blamed, and which of the two conditions makes it so."""
    if one.voters >= one.needs and of.state is None:
        told = [each.domain for each in of.children if each.state is not None]
        alone = "it has yet to settle, or a part of it has nearly all"
        return f"{one.needs}, but {f'it is told of as {some(told)}' if told else alone}"
    if one.needs > of.voting:
        return f"more than {of.voting}, so it is too small to be blamed for it"
    if one.by_chance > one.by_share:
        return f"{one.needs}, as fewer may be chance"
    return f"{one.needs}, as fewer are too small a part"


def _vote(one: VoteTold) -> str:
    when = ago(one.age) if one.at else "before this aggregator began"
    if not one.check:
        return f"{when}; it does not show it any more"
    message = f": {one.message}" if one.message else ""
    return f"{one.check} on {where(one.target)}, {when}{message}"


def _line(one: DomainLine) -> Line:
    """A domain in a list."""
    said = f"{one.domain}: {one.voters} of {many(one.members, 'node')}"
    if one.state is None:
        return Line((Words("  "),), f"{said} show something")
    why = f": {one.why}" if one.why else ""
    if one.why and one.state == State.DRY_RUN:
        why = f", would be withheld: {one.why}"
    kinds = ", ".join(one.kinds)
    return Line((Words("  "),), f"{said}, {kinds}, {one.state.words}{why}", STYLES[one.state])


def _counted(one: DomainLine) -> str:
    state = f", to blame ({one.state.words})" if one.state is not None else ""
    return f"{one.domain}: {one.voters} of {many(one.members, 'node')} show something{state}"
