"""Words that the pages of the fleet share. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from nodeguard.cli.moments import ago
from nodeguard.cli.render.page import Line, Words
from nodeguard.fleet.domains.incidents import CHECK
from nodeguard.fleet.seat import POOL
from nodeguard.fleet_api.forms import DryRunTold, LedgerTold, RefusedMessages
from nodeguard.fleet_api.node_forms import DEGRADED, MarkTold
from nodeguard.judge.words import span
from nodeguard.model.incident import State
from nodeguard.model.mark import Mark
from nodeguard.model.slot import NODE, label

_FIELD = 12
_SHOWN = 4

# Style by state: what is sick and at work stands out.
STYLES = {
    State.OPEN: "warning",
    State.PENDING: "warning",
    State.DRY_RUN: "warning",
    State.WITHHELD: "fatal",
    State.MARKED: "suspect",
    State.ADVISED: "suspect",
    State.RECOVERING: "ok",
    State.RESOLVED: "dim",
}
MARK_STYLES = {Mark.QUARANTINE.value: "fatal", Mark.SUSPECT.value: "suspect", DEGRADED: "suspect"}


def item(name: str, text: str, style: str = "", name_style: str = "dim") -> Line:
    """A line that gives something a name, below a headline."""
    return Line((Words(f"  {name:<{_FIELD - 2}}", name_style),), text, style)


def title(word: str, style: str, text: str) -> Line:
    """The first line of a section: a word in colour, then what it is about."""
    return Line((Words(word.upper(), style), Words("  ")), text, "strong")


def refused(messages: RefusedMessages) -> Line:
    """Return the line about messages of a node that were refused."""
    count = f"{many(messages.count, 'message')} of {messages.node} in the past minutes"
    text = f"{count}, the latest {ago(messages.age)}: {messages.message}"
    return item("refused", text, name_style="fatal")


def where(slot: str) -> str:
    """A slot in words."""
    return "the node" if slot == NODE else label(slot)


def place(node: str, domain: str, resource: str) -> str:
    """What an incident is of: a part of a node, a domain, or a check."""
    if node:
        return f"{node}, {where(resource)}"
    return domain or (f"check {resource.removeprefix(CHECK)}" if resource.startswith(CHECK) else resource)


def moment(text: str, age: float) -> str:
    """A moment and how long ago it was."""
    return f"{spoken(text)}, {ago(age)}"


def spoken(text: str) -> str:
    """A moment of the API's as a page shows it."""
    return text.replace("T", " ").replace("Z", " UTC")


def some(names: Iterable[str]) -> str:
    """The first few of some names, and how many there are besides."""
    named = list(names)
    rest = len(named) - _SHOWN
    return ", ".join(named[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")


def many(count: float, one: str, more: str = "") -> str:
    """A number of things: `1 node`, `12.5 nodes`."""
    return (
        f"{count:.4g} {one if count == 1 else more or f'{one}s'}"
        if count < 10_000
        else f"{count:.0f} {more or f'{one}s'}"
    )


def ledger(one: LedgerTold) -> str:
    """A budget: `fleet 12 of 375`."""
    kind, _, name = one.name.partition("/")
    said = "nodes of no pool" if one.name == POOL else name if kind == "domain" else f"{kind} {name}".strip()
    beside = f" and {many(one.suspect, 'suspect node')}" if one.suspect else ""
    return f"{said} {one.used:.4g} of {one.most:.5g}{beside}"


def state(one: State, left: float = 0.0) -> str:
    """A state in words. left: seconds of a grace period that are left."""
    if one == State.PENDING:
        return f"pending (grace period, {time_left(left)})"
    return one.words


def time_left(seconds: float) -> str:
    """How much of a time is left, in words."""
    return f"{span(round(seconds))} left" if seconds >= 1 else "about to end"


def dry_run(one: DryRunTold) -> str:
    """What would be marked, and how much of that the budgets allow; empty for nothing."""
    quarantined = [many(one.nodes, "node")] if one.nodes else []
    quarantined += [many(one.devices, "GPU")] if one.devices else []
    what = [f"{' and '.join(quarantined)} would be quarantined"] if quarantined else []
    what += [f"{many(one.suspect, 'node')} would be marked suspect"] if one.suspect else []
    if not what:
        return ""
    if not (one.over or one.other):
        return f"{', '.join(what)}, within budget"
    counts = [f"{one.within} within budget"] if one.within or one.over else []
    if one.over:
        counts.append(f"{one.over} over budget ({'; '.join(each.why for each in one.limits)})")
    if one.other:
        counts.append(f"{one.other} withheld ({'; '.join(each.why for each in one.reasons)})")
    return f"{', '.join(what)}: {', '.join(counts)}"


def mark(one: MarkTold) -> list[Line]:
    """A mark, why it stands, and what it waits for."""
    device = f", as device {one.device}" if one.device else ""
    target = one.target if one.mark == DEGRADED else where(one.target)
    lines = [title(one.mark, MARK_STYLES[one.mark], f"{one.check} - {target}{device}")]
    if one.slots:
        lines.append(item("slots", some(map(label, one.slots))))
    if one.part:
        lines.append(item("part", one.part))
    lines.append(item("since", moment(one.since, one.age) + ("" if one.written else "; not written yet")))
    until = f": {spoken(one.wait.until)}, in {span(one.wait.left)}" if one.wait.until else ""
    lines.append(item("state" if one.wait.on == "write" else "waits for", f"{one.wait.says}{until}"))
    return lines
