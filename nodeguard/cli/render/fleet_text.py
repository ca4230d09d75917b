"""Words that the pages of the fleet share. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nodeguard.cli.render.terminal import StyledLine, StyledText
from nodeguard.cli.timestamps import format_age
from nodeguard.fleet.incidents.domain_incidents import CHECK
from nodeguard.fleet.state.node_placement import POOL
from nodeguard.fleet.state.topology.topologies import PLACES
from nodeguard.fleet_api.schema.domain import MissingLabelView, SuppressedCheckView, TopologyView
from nodeguard.fleet_api.schema.node import DEGRADED, MarkView
from nodeguard.fleet_api.schema.status import (
    BudgetView,
    DryRunView,
    FleetStatus,
    RefusedMessages,
    RepeatOffenderView,
)
from nodeguard.judge.formatting import format_duration
from nodeguard.model.incident import IncidentState
from nodeguard.model.mark import Mark
from nodeguard.model.target import NODE, target_label

_FIELD = 12
_NAMES_SHOWN = 4

# Style by state: what is sick and at work stands out.
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
MARK_STYLES = {Mark.QUARANTINE.value: "fatal", Mark.SUSPECT.value: "suspect", DEGRADED: "suspect"}


def item_line(name: str, text: str, style: str = "", name_style: str = "dim") -> StyledLine:
    """A line that gives something a name, below a headline."""
    return StyledLine((StyledText(f"  {name:<{_FIELD - 2}}", name_style),), text, style)


def title_line(word: str, style: str, text: str) -> StyledLine:
    """The first line of a section: a word in colour, then what it is about."""
    return StyledLine((StyledText(word.upper(), style), StyledText("  ")), text, "strong")


def refused_line(messages: RefusedMessages) -> StyledLine:
    """Return the line about messages of a node that were refused."""
    count = f"{count_noun(messages.count, 'message')} of {messages.node} in the past minutes"
    text = f"{count}, the latest {format_age(messages.age)}: {messages.message}"
    return item_line("refused", text, name_style="fatal")


def target_text(slot: str) -> str:
    """A slot in words."""
    return "the node" if slot == NODE else target_label(slot)


def subject_text(node: str, domain: str, resource: str) -> str:
    """What an incident is of: a part of a node, a domain, or a check."""
    if node:
        return f"{node}, {target_text(resource)}"
    return domain or (f"check {resource.removeprefix(CHECK)}" if resource.startswith(CHECK) else resource)


def time_and_age(text: str, age: float) -> str:
    """A moment and how long ago it was."""
    return f"{api_time(text)}, {format_age(age)}"


def api_time(text: str) -> str:
    """A moment of the API's as a page shows it."""
    return text.replace("T", " ").replace("Z", " UTC")


def first_names(names: Iterable[str]) -> str:
    """The first few of some names, and how many there are besides."""
    named = list(names)
    rest = len(named) - _NAMES_SHOWN
    return ", ".join(named[:_NAMES_SHOWN]) + (f" and {rest} more" if rest > 0 else "")


def count_noun(count: float, one: str, more: str = "") -> str:
    """A number of things: `1 node`, `12.5 nodes`."""
    return (
        f"{count:.4g} {one if count == 1 else more or f'{one}s'}"
        if count < 10_000
        else f"{count:.0f} {more or f'{one}s'}"
    )


def budget_text(one: BudgetView) -> str:
    """A budget: `fleet 12 of 375`."""
    kind, _, name = one.name.partition("/")
    said = "nodes of no pool" if one.name == POOL else name if kind == "domain" else f"{kind} {name}".strip()
    beside = f" and {count_noun(one.suspect, 'suspect node')}" if one.suspect else ""
    return f"{said} {one.used:.4g} of {one.limit:.5g}{beside}"


def state_text(one: IncidentState, left: float = 0.0) -> str:
    """A state in words. left: seconds of a grace period that are left."""
    if one == IncidentState.PENDING:
        return f"pending (grace period, {time_left(left)})"
    return one.phrase


def time_left(seconds: float) -> str:
    """How much of a time is left, in words."""
    return f"{format_duration(round(seconds))} left" if seconds >= 1 else "about to end"


def dry_run_text(one: DryRunView) -> str:
    """What would be marked, and how much of that the budgets allow; empty for nothing."""
    quarantined = [count_noun(one.nodes, "node")] if one.nodes else []
    quarantined += [count_noun(one.devices, "GPU")] if one.devices else []
    what = [f"{' and '.join(quarantined)} would be quarantined"] if quarantined else []
    what += [f"{count_noun(one.suspect, 'node')} would be marked suspect"] if one.suspect else []
    if not what:
        return ""
    if not (one.over_budget or one.otherwise_withheld):
        return f"{', '.join(what)}, within budget"
    counts = [f"{one.within_budget} within budget"] if one.within_budget or one.over_budget else []
    if one.over_budget:
        counts.append(
            f"{one.over_budget} over budget ({'; '.join(each.reason for each in one.budget_limits)})"
        )
    if one.otherwise_withheld:
        counts.append(f"{one.otherwise_withheld} withheld ({'; '.join(each.reason for each in one.reasons)})")
    return f"{', '.join(what)}: {', '.join(counts)}"


def mark_lines(one: MarkView) -> list[StyledLine]:
    """A mark, why it stands, and what it waits for."""
    device = f", as device {one.device}" if one.device else ""
    target = one.target if one.mark == DEGRADED else target_text(one.target)
    lines = [title_line(one.mark, MARK_STYLES[one.mark], f"{one.check} - {target}{device}")]
    if one.targets:
        lines.append(item_line("slots", first_names(map(target_label, one.targets))))
    if one.component:
        lines.append(item_line("part", one.component))
    lines.append(
        item_line("since", time_and_age(one.since, one.age) + ("" if one.written else "; not written yet"))
    )
    until = f": {api_time(one.wait.until)}, in {format_duration(one.wait.left)}" if one.wait.until else ""
    lines.append(item_line("state" if one.wait.on == "write" else "waits for", f"{one.wait.says}{until}"))
    return lines


_NAMES_SHOWN = 3


def topology_text(one: TopologyView) -> str:
    """A view: how many domains it has, by what, and who lacks it."""
    if not one.keys:
        return f"{one.topology} {count_noun(one.domains, 'version')}"
    lacks = "".join(f", {missing_label_text(lack)}" for lack in one.missing_labels)
    return f"{one.topology} {count_noun(one.domains, 'domain')} by {topology_source(one)}{lacks}"


def topology_source(one: TopologyView) -> str:
    """By what it is known which nodes share it."""
    if not one.keys:
        return "what agents say they run"
    if one.keys == (PLACES,):
        return "the policy's places"
    return f"label{'' if len(one.keys) == 1 else 's'} {', '.join(one.keys)}"


def missing_label_text(one: MissingLabelView) -> str:
    """Who lacks a key."""
    what = "a place" if one.key == PLACES else one.key
    verb = "lacks" if one.nodes == 1 else "lack"
    return f"{count_noun(one.nodes, 'node')} {verb} {what} ({names_text(one.names, one.nodes)})"


def suppressed_check_text(one: SuppressedCheckView) -> str:
    """A suppressed check, and why."""
    alone = f" on {one.domain} alone" if one.domain else ""
    return f"{one.check} is suppressed{alone}: {one.reason}"


def names_text(names: Sequence[str], total: int) -> str:
    """The first few of names, where there may be more than are named."""
    shown = names[:_NAMES_SHOWN]
    rest = total - len(shown)
    return ", ".join(shown) + (f" and {rest} more" if rest > 0 else "")


def repeat_offender_text(one: RepeatOffenderView) -> str:
    """What is to be done about a part, and why."""
    few = f"{one.expected:.1f}" if one.expected >= _NAMES_SHOWN else "fewer than 0.1"
    return (
        f"{one.component} ({target_text(one.target)}) has failed {one.faults} times in {format_duration(one.age)}, "
        f"where parts of this fleet do {few} times: have it replaced"
    )


def repeat_offenders_text(one: FleetStatus) -> str:
    """How many there are, and the worst by name."""
    worst = ", ".join(
        f"{each.component} in {each.node} ({each.faults} times)" for each in one.repeat_offenders
    )
    rest = f" and {one.repeat_offenders_omitted} more" if one.repeat_offenders_omitted else ""
    return f"{count_noun(len(one.repeat_offenders) + one.repeat_offenders_omitted, 'part')} to be replaced: {worst}{rest}"


_NAMES_SHOWN = 0.05
