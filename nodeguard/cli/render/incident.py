"""The pages of incidents: the list, and one of them. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from nodeguard.cli.render.fleet_text import (
    STYLES,
    count_noun,
    item_line,
    mark_lines,
    state_text,
    subject_text,
    target_text,
    time_and_age,
    title_line,
)
from nodeguard.cli.render.terminal import StyledLine, StyledText, printable
from nodeguard.fleet_api.schema.incident import IncidentList, IncidentView
from nodeguard.fleet_api.schema.status import IncidentSummary
from nodeguard.judge.formatting import format_duration
from nodeguard.model.finding import Action
from nodeguard.model.incident import ClearAnswer, IncidentState
from nodeguard.model.mark import Mark

_MEANS = {
    IncidentState.OPEN: "reported only; nothing is kept away",
    IncidentState.PENDING: "nothing is kept away yet",
    IncidentState.DRY_RUN: "its {1} is not enforced",
    IncidentState.WITHHELD: "it asks for a mark that is not set",
    IncidentState.MARKED: "new {0}work is kept away",
    IncidentState.ADVISED: "advice: keep new {0}work away",
    IncidentState.RECOVERING: "proven to be over; it stays in effect until the soak period ends",
    IncidentState.RESOLVED: "over",
}


def incident_list_lines(one: IncidentList, columns: int) -> list[StyledLine]:
    """The list, one line each, or two where a page of so many columns is too narrow for that."""
    if not one.incidents:
        return [StyledLine(text="no incidents", style="ok")]
    rows = [_cells(each) for each in one.incidents]
    wide = [max(map(len, cells)) for cells in zip(_HEADS, *rows, strict=True)]
    narrow = sum(wide) + 2 * len(wide[1:]) > columns
    lines = [StyledLine(tuple(StyledText(text, "dim") for text in _spread(_HEADS, wide, narrow=narrow)))]
    for each, cells in zip(one.incidents, rows, strict=True):
        styles = (each.health.value, STYLES[each.state], "", "", "")
        texts = _spread(cells, wide, narrow=narrow)
        lines.append(
            StyledLine(tuple(StyledText(text, style) for text, style in zip(texts, styles, strict=False)))
        )
        if narrow:
            lines.append(StyledLine((StyledText("  "), StyledText(cells[-1], "dim"))))
    more = f" and {one.omitted} more: narrow it with --node or --state" if one.omitted else ""
    return [*lines, StyledLine(), StyledLine(text=f"{count_noun(len(one.incidents), 'incident')}{more}")]


_HEADS = ("HEALTH", "STATE", "AGE", "CAUSE", "INCIDENT")


def _cells(one: IncidentSummary) -> tuple[str, ...]:
    known = f" (acknowledged: {one.acknowledged})" if one.acknowledged else ""
    return (
        one.health.value,
        one.state.phrase,
        format_duration(one.age),
        printable(one.cause),
        printable(one.name + known),
    )


def _spread(cells: tuple[str, ...], wide: list[int], *, narrow: bool) -> list[str]:
    """Cells under one another; the last, which is the longest, has a line of its own on a narrow page."""
    shown = cells[:-1] if narrow else cells
    return [f"{text:<{width}}  " for text, width in zip(shown, wide, strict=False)]


def incident_lines(one: IncidentView) -> list[StyledLine]:
    """One incident in full."""
    lines = [title_line(one.health.value, one.health.value, _gist(one)), *_facts(one)]
    for each in one.marks:
        lines += [StyledLine(), *mark_lines(each)]
    for symptom in one.symptoms:
        lines += [
            StyledLine(),
            title_line(
                symptom.health.value, symptom.health.value, f"{symptom.check} - {_at(symptom.target)}"
            ),
        ]
        lines += [item_line("what", symptom.message)] if symptom.message else []
        lines += [item_line("seen", seen, "dim") for seen in symptom.evidence]
    return lines


def _gist(one: IncidentView) -> str:
    if not one.node:
        of = subject_text(one.node, one.domain, one.resource)
        return f"{one.cause} - {of}" if one.domain else f"{of} is suppressed"
    of = f"{target_text(one.resource)} of {one.node}" if one.resource != "node" else f"node {one.node}"
    return f"{one.cause} - {of}"


def _answer(one: IncidentView) -> str:
    """What became of a clear, as far as it is known."""
    match one.clear_result:
        case ClearAnswer.WAITING:
            return "; the node's agent has not answered yet"
        case ClearAnswer.DONE:
            return f"; done: {one.clear_message}"
        case ClearAnswer.PARTLY:
            return f"; done in part: {one.clear_message}"
        case ClearAnswer.REFUSED:
            return f"; refused: {one.clear_message}"
    return ""


def _at(target: str) -> str:
    """Where something was found: a slot, or one of a node that is named before it."""
    node, comma, slot = target.partition(", ")
    return f"{node}, {target_text(slot)}" if comma else target_text(target)


def _facts(one: IncidentView) -> Iterator[StyledLine]:
    detail = f": {one.reason}" if one.reason else ""
    of_gangs = one.domain or (one.marks and all(each.mark == Mark.SUSPECT for each in one.marks))
    gangs = "gang " if of_gangs else ""
    whose = "view" if one.domain else "check"
    yield item_line(
        "state",
        f"{state_text(one.state, one.seconds_left)}, {_MEANS[one.state].format(gangs, whose)}{detail}",
    )
    if one.scope:
        yield item_line("concerns", one.scope)
    yield item_line("since", time_and_age(one.since, one.age))
    yield item_line("changed", time_and_age(one.last_transition, one.last_transition_age))
    if one.occurrences > 1:
        yield item_line("opened", f"{one.occurrences} times")
    if one.message and not any(each.message == one.message for each in one.symptoms):
        yield item_line("what", one.message)
    if one.component:
        yield item_line("part" if one.node else "only with", one.component)
    if one.action != Action.NONE:
        yield item_line("do", one.action.phrase)
    if one.acknowledged:
        yield item_line("known", f"acknowledged: {one.acknowledged}")
    if one.clear_request:
        yield item_line("clear", f"asked by {one.clear_request}{_answer(one)}")
    about = f"domain {one.domain}" if one.domain else one.cause
    of = f"nodeguard explain node {one.node}, " if one.node else ""
    alone = f", nodeguard explain domain {one.component}" if one.component and not one.node else ""
    yield item_line("more", f"{of}nodeguard explain {about}{alone}", "dim")
