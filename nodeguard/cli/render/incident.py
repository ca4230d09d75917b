"""The pages of incidents: the list, and one of them. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from nodeguard.cli.render.fleet_words import STYLES, item, many, mark, moment, place, state, title, where
from nodeguard.cli.render.page import Line, Words, plain
from nodeguard.fleet_api.forms import IncidentLine
from nodeguard.fleet_api.incident_forms import IncidentList, IncidentPage
from nodeguard.judge.words import span
from nodeguard.model.finding import Action
from nodeguard.model.incident import ClearAnswer, State
from nodeguard.model.mark import Mark

_MEANS = {
    State.OPEN: "reported only; nothing is kept away",
    State.PENDING: "nothing is kept away yet",
    State.DRY_RUN: "its {1} is not enforced",
    State.WITHHELD: "it asks for a mark that is not set",
    State.MARKED: "new {0}work is kept away",
    State.ADVISED: "advice: keep new {0}work away",
    State.RECOVERING: "proven to be over; it stays in effect until the soak period ends",
    State.RESOLVED: "over",
}


def incidents_page(one: IncidentList, columns: int) -> list[Line]:
    """The list, one line each, or two where a page of so many columns is too narrow for that."""
    if not one.incidents:
        return [Line(text="no incidents", style="ok")]
    rows = [_cells(each) for each in one.incidents]
    wide = [max(map(len, cells)) for cells in zip(_HEADS, *rows, strict=True)]
    narrow = sum(wide) + 2 * len(wide[1:]) > columns
    lines = [Line(tuple(Words(text, "dim") for text in _spread(_HEADS, wide, narrow=narrow)))]
    for each, cells in zip(one.incidents, rows, strict=True):
        styles = (each.health.value, STYLES[each.state], "", "", "")
        texts = _spread(cells, wide, narrow=narrow)
        lines.append(Line(tuple(Words(text, style) for text, style in zip(texts, styles, strict=False))))
        if narrow:
            lines.append(Line((Words("  "), Words(cells[-1], "dim"))))
    more = f" and {one.more} more: narrow it with --node or --state" if one.more else ""
    return [*lines, Line(), Line(text=f"{many(len(one.incidents), 'incident')}{more}")]


_HEADS = ("HEALTH", "STATE", "AGE", "CAUSE", "INCIDENT")


def _cells(one: IncidentLine) -> tuple[str, ...]:
    known = f" (acknowledged: {one.acknowledged})" if one.acknowledged else ""
    return one.health.value, one.state.words, span(one.age), plain(one.cause), plain(one.name + known)


def _spread(cells: tuple[str, ...], wide: list[int], *, narrow: bool) -> list[str]:
    """Cells under one another; the last, which is the longest, has a line of its own on a narrow page."""
    shown = cells[:-1] if narrow else cells
    return [f"{text:<{width}}  " for text, width in zip(shown, wide, strict=False)]


def incident_page(one: IncidentPage) -> list[Line]:
    """One incident in full."""
    lines = [title(one.health.value, one.health.value, _gist(one)), *_facts(one)]
    for each in one.marks:
        lines += [Line(), *mark(each)]
    for symptom in one.symptoms:
        lines += [
            Line(),
            title(symptom.health.value, symptom.health.value, f"{symptom.check} - {_at(symptom.target)}"),
        ]
        lines += [item("what", symptom.message)] if symptom.message else []
        lines += [item("seen", seen, "dim") for seen in symptom.evidence]
    return lines


def _gist(one: IncidentPage) -> str:
    if not one.node:
        of = place(one.node, one.domain, one.resource)
        return f"{one.cause} - {of}" if one.domain else f"{of} is suppressed"
    of = f"{where(one.resource)} of {one.node}" if one.resource != "node" else f"node {one.node}"
    return f"{one.cause} - {of}"


def _answer(one: IncidentPage) -> str:
    """What became of a clear, as far as it is known."""
    match one.answer:
        case ClearAnswer.WAITING:
            return "; the node's agent has not answered yet"
        case ClearAnswer.DONE:
            return f"; done: {one.answer_says}"
        case ClearAnswer.PARTLY:
            return f"; done in part: {one.answer_says}"
        case ClearAnswer.REFUSED:
            return f"; refused: {one.answer_says}"
    return ""


def _at(target: str) -> str:
    """Where something was found: a slot, or one of a node that is named before it."""
    node, comma, slot = target.partition(", ")
    return f"{node}, {where(slot)}" if comma else where(target)


def _facts(one: IncidentPage) -> Iterator[Line]:
    detail = f": {one.detail}" if one.detail else ""
    of_gangs = one.domain or (one.marks and all(each.mark == Mark.SUSPECT for each in one.marks))
    gangs = "gang " if of_gangs else ""
    whose = "view" if one.domain else "check"
    yield item("state", f"{state(one.state, one.left)}, {_MEANS[one.state].format(gangs, whose)}{detail}")
    if one.scope:
        yield item("concerns", one.scope)
    yield item("since", moment(one.since, one.age))
    yield item("changed", moment(one.changed, one.changed_age))
    if one.times > 1:
        yield item("opened", f"{one.times} times")
    if one.message and not any(each.message == one.message for each in one.symptoms):
        yield item("what", one.message)
    if one.part:
        yield item("part" if one.node else "only with", one.part)
    if one.action != Action.NONE:
        yield item("do", one.action.words)
    if one.acknowledged:
        yield item("known", f"acknowledged: {one.acknowledged}")
    if one.clear:
        yield item("clear", f"asked by {one.clear}{_answer(one)}")
    about = f"domain {one.domain}" if one.domain else one.cause
    of = f"nodeguard explain node {one.node}, " if one.node else ""
    alone = f", nodeguard explain domain {one.part}" if one.part and not one.node else ""
    yield item("more", f"{of}nodeguard explain {about}{alone}", "dim")
