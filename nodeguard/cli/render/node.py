"""The page of nodeguard explain node. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from nodeguard.cli.render.fleet_text import (
    api_time,
    budget_text,
    count_noun,
    first_names,
    item_line,
    mark_lines,
    refused_line,
    repeat_offender_text,
    state_text,
    target_text,
    time_and_age,
    title_line,
)
from nodeguard.cli.render.terminal import StyledLine
from nodeguard.cli.timestamps import format_age
from nodeguard.fleet_api.schema.node import DEGRADED, ChargeView, FindingView, MarkRequestView, NodeView
from nodeguard.model.finding import DataStatus
from nodeguard.model.incident import IncidentState
from nodeguard.model.mark import Mark
from nodeguard.model.target import target_label

_OFF = {Mark.QUARANTINE.value: "all new work", Mark.SUSPECT.value: "new gang work"}


def node_lines(one: NodeView) -> list[StyledLine]:
    """The lines of the page."""
    lines = [title_line(one.health, one.health, f"{one.node}: {_gist(one)}."), *_facts(one)]
    for each in one.marks:
        lines += [StyledLine(), *mark_lines(each)]
    for finding in one.findings:
        lines += [StyledLine(), *_finding(finding)]
    told = {(finding.check, finding.target) for finding in one.findings}
    asked = (
        *((IncidentState.PENDING, each) for each in one.pending),
        *((IncidentState.WITHHELD, each) for each in one.withheld),
        *((IncidentState.DRY_RUN, each) for each in one.would_mark),
    )
    rest = [_want(of, each) for of, each in asked if (each.check, each.target) not in told]
    ends = [*rest, *_ends(one)]
    return [*lines, StyledLine(), *ends] if ends else lines


def _gist(one: NodeView) -> str:
    degraded = [each for each in one.marks if each.mark == DEGRADED]
    whole = [each for each in one.marks if not (each.device or each in degraded)]
    devices = dict.fromkeys(each.device for each in one.marks if each.device)
    if whole:
        checks = first_names(dict.fromkeys(each.check for each in whole))
        said = f"{_kept(one, _OFF[whole[0].mark], 'it')} for {checks}"
    elif degraded:
        domains = first_names(dict.fromkeys(each.target for each in degraded))
        verb = "is" if len(degraded) == 1 else "are"
        said = f"{_kept(one, 'new gang work', 'it')}, as {domains} {verb} degraded"
    elif devices:
        said = _kept(one, "work", f"its {first_names(devices)}")
    elif one.withheld:
        said = f"not marked, though {one.withheld[0].check} asks for it: {one.withheld[0].reason}"
    elif one.pending:
        first = min(one.pending, key=lambda each: each.seconds_left)
        said = f"{first.check} asks for a mark: {state_text(IncidentState.PENDING, first.seconds_left)}"
    elif one.would_mark:
        said = _dry_run(one.would_mark)
    elif one.findings:
        said = "nothing keeps work off it"
    else:
        said = "nothing wrong found" if one.health_known else "nothing is known of it"
    return f"{said}; a person's cordon keeps all work off it" if one.cordoned_by_user else said


def _dry_run(would: tuple[MarkRequestView, ...]) -> str:
    """What a dry run would do to the node: the worst that nothing would withhold, else why that would be."""
    first = min(would, key=lambda each: (each.reason != "", each.mark != Mark.QUARANTINE))
    if first.reason:
        return f"dry run: the mark that {first.check} asks for would be withheld: {first.reason}"
    done = "be quarantined" if first.mark == Mark.QUARANTINE else "be marked suspect"
    return f"dry run: it would {done} for {first.check}"


def _kept(one: NodeView, work: str, off: str) -> str:
    return f"advice: keep {work} off {off}" if one.advisory else f"{work} is kept off {off}"


def _facts(one: NodeView) -> Iterator[StyledLine]:
    if one.last_report_age is None:
        yield item_line(
            "heard", "never by this aggregator: see that its agent runs and reaches it", name_style="warning"
        )
    else:
        last = f", its last report was {one.reported}" if one.reported else ""
        said = format_age(one.last_report_age) + (f"; it does not report any more{last}" if one.stale else "")
        known = (
            ""
            if one.data_status == DataStatus.FRESH
            else f"; what it knows is {one.data_status.value} in part"
        )
        yield item_line("heard", said + known, name_style="warning" if one.stale else "dim")
    if one.refused_messages is not None:
        yield refused_line(one.refused_messages)
    runs = (
        one.agent_version and f"nodeguard {one.agent_version}",
        one.driver and f"driver {one.driver}",
        one.platform,
    )
    if any(runs):
        yield item_line("runs", ", ".join(filter(None, runs)))
    sits = (f"{one.gpus} GPUs", f"pool {one.pool}" if one.pool else "no pool", *one.domains)
    yield item_line("sits in", ", ".join(sits))
    if one.hold:
        yield item_line("hold", f"{one.hold}; nothing is changed on it", name_style="suspect")
    if one.maintenance:
        yield item_line(
            "at work", f"{one.maintenance}; nothing new is marked, and nothing proven", name_style="suspect"
        )
    if one.cordoned:
        yield item_line("cordon", "nodeguard's own; it goes with the quarantine")
    for part in one.repeat_offenders:
        yield item_line("lemon", repeat_offender_text(part), name_style="warning")
    if one.unknown_taints:
        yield item_line(
            "strange",
            f"taints that nodeguard does not know of, and leaves: {first_names(one.unknown_taints)}",
            name_style="warning",
        )


def _finding(one: FindingView) -> Iterator[StyledLine]:
    yield title_line(one.health.value, one.health.value, f"{one.check} - {target_text(one.target)}")
    if one.message:
        yield item_line("what", one.message)
    if one.targets:
        yield item_line("slots", first_names(map(target_label, one.targets)))
    if one.component:
        yield item_line("part", one.component)
    stale = "" if one.data_status == DataStatus.FRESH else f"; {one.data_status.value}"
    note = f"; {one.note}" if one.note else ""
    yield item_line("since", f"{time_and_age(one.since, one.age)}{stale}{note}")
    for seen in one.evidence:
        yield item_line("seen", seen, "dim")
    match one.state:
        case IncidentState.MARKED:
            yield item_line("mark", "set")
        case IncidentState.ADVISED:
            yield item_line("mark", "advised")
        case IncidentState.PENDING:
            yield item_line("mark", state_text(IncidentState.PENDING, one.seconds_left))
        case IncidentState.WITHHELD:
            yield item_line("mark", f"withheld: {one.reason}", name_style="fatal")
        case IncidentState.DRY_RUN:
            yield item_line("mark", f"dry run: {_would(one.reason)}")
        case _:
            yield item_line("mark", f"none: {one.reason}")
    yield item_line("more", f"nodeguard explain {one.check}", "dim")


def _would(why: str) -> str:
    """What a dry run would do. why: what would withhold the mark; empty for nothing."""
    return f"would be withheld: {why}" if why else "would be set; the check is not enforced"


def _want(of: IncidentState, one: MarkRequestView) -> StyledLine:
    """A mark that is asked for, without the finding that asks for it."""
    said = (
        f"dry run, {_would(one.reason)}" if of == IncidentState.DRY_RUN else state_text(of, one.seconds_left)
    )
    why = f": {one.reason}" if of == IncidentState.WITHHELD else ""
    return item_line("asked", f"{one.mark.value} for {one.check} on {target_text(one.target)}, {said}{why}")


def _ends(one: NodeView) -> Iterator[StyledLine]:
    for charge in one.charges:
        yield item_line("charged", _charge(charge))
    if one.budgets:
        yield item_line("budgets", ", ".join(map(budget_text, one.budgets)))
    for unread in one.unreadable:
        slots = (
            f" of {first_names(map(target_label, unread.targets))}"
            if unread.targets not in {(), ("node",)}
            else ""
        )
        yield item_line(
            "not read", f"{unread.source}{slots}: {unread.reason or unread.readings}", name_style="warning"
        )
    if one.incidents_omitted:
        text = f"{count_noun(one.incidents_omitted, 'incident')}, for which there is no room; the findings are above"
        yield item_line("left out", text, name_style="warning")
    for incident in one.incidents:
        yield item_line("incident", f"{incident.name} ({incident.state.phrase})")


def _charge(one: ChargeView) -> str:
    device = f", device {one.device}" if one.device else ""
    if not one.ended:
        return f"to {one.check}{device}, {format_age(one.age)}"
    times = f", {one.count} times lately" if one.count > 1 else ""
    return f"to {one.check}, given back {api_time(one.ended)}{times}; the next soak is longer for it"
