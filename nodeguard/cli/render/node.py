"""The page of nodeguard explain node. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from nodeguard.cli.moments import ago
from nodeguard.cli.render.fleet_words import (
    item,
    ledger,
    many,
    mark,
    moment,
    refused,
    some,
    spoken,
    state,
    title,
    where,
)
from nodeguard.cli.render.page import Line
from nodeguard.cli.render.repeat_offenders import lemon
from nodeguard.fleet_api.node_forms import DEGRADED, ChargeTold, FindingTold, NodePage, WantTold
from nodeguard.model.finding import Knowledge
from nodeguard.model.incident import State
from nodeguard.model.mark import Mark
from nodeguard.model.slot import label

_OFF = {Mark.QUARANTINE.value: "all new work", Mark.SUSPECT.value: "new gang work"}


def node_page(one: NodePage) -> list[Line]:
    """The lines of the page."""
    lines = [title(one.health, one.health, f"{one.node}: {_gist(one)}."), *_facts(one)]
    for each in one.marks:
        lines += [Line(), *mark(each)]
    for finding in one.findings:
        lines += [Line(), *_finding(finding)]
    told = {(finding.check, finding.target) for finding in one.findings}
    asked = (
        *((State.PENDING, each) for each in one.pending),
        *((State.WITHHELD, each) for each in one.withheld),
        *((State.DRY_RUN, each) for each in one.would),
    )
    rest = [_want(of, each) for of, each in asked if (each.check, each.target) not in told]
    ends = [*rest, *_ends(one)]
    return [*lines, Line(), *ends] if ends else lines


def _gist(one: NodePage) -> str:
    degraded = [each for each in one.marks if each.mark == DEGRADED]
    whole = [each for each in one.marks if not (each.device or each in degraded)]
    devices = dict.fromkeys(each.device for each in one.marks if each.device)
    if whole:
        checks = some(dict.fromkeys(each.check for each in whole))
        said = f"{_kept(one, _OFF[whole[0].mark], 'it')} for {checks}"
    elif degraded:
        domains = some(dict.fromkeys(each.target for each in degraded))
        verb = "is" if len(degraded) == 1 else "are"
        said = f"{_kept(one, 'new gang work', 'it')}, as {domains} {verb} degraded"
    elif devices:
        said = _kept(one, "work", f"its {some(devices)}")
    elif one.withheld:
        said = f"not marked, though {one.withheld[0].check} asks for it: {one.withheld[0].why}"
    elif one.pending:
        first = min(one.pending, key=lambda each: each.left)
        said = f"{first.check} asks for a mark: {state(State.PENDING, first.left)}"
    elif one.would:
        said = _dry_run(one.would)
    elif one.findings:
        said = "nothing keeps work off it"
    else:
        said = "nothing wrong found" if one.known else "nothing is known of it"
    return f"{said}; a person's cordon keeps all work off it" if one.out else said


def _dry_run(would: tuple[WantTold, ...]) -> str:
    """What a dry run would do to the node: the worst that nothing would withhold, else why that would be."""
    first = min(would, key=lambda each: (each.why != "", each.mark != Mark.QUARANTINE))
    if first.why:
        return f"dry run: the mark that {first.check} asks for would be withheld: {first.why}"
    done = "be quarantined" if first.mark == Mark.QUARANTINE else "be marked suspect"
    return f"dry run: it would {done} for {first.check}"


def _kept(one: NodePage, work: str, off: str) -> str:
    return f"advice: keep {work} off {off}" if one.advised else f"{work} is kept off {off}"


def _facts(one: NodePage) -> Iterator[Line]:
    if one.heard_age is None:
        yield item(
            "heard", "never by this aggregator: see that its agent runs and reaches it", name_style="warning"
        )
    else:
        last = f", its last report was {one.reported}" if one.reported else ""
        said = ago(one.heard_age) + (f"; it does not report any more{last}" if one.silent else "")
        known = (
            "" if one.knowledge == Knowledge.FRESH else f"; what it knows is {one.knowledge.value} in part"
        )
        yield item("heard", said + known, name_style="warning" if one.silent else "dim")
    if one.refused is not None:
        yield refused(one.refused)
    runs = (one.agent and f"nodeguard {one.agent}", one.driver and f"driver {one.driver}", one.platform)
    if any(runs):
        yield item("runs", ", ".join(filter(None, runs)))
    sits = (f"{one.gpus} GPUs", f"pool {one.pool}" if one.pool else "no pool", *one.domains)
    yield item("sits in", ", ".join(sits))
    if one.hold:
        yield item("hold", f"{one.hold}; nothing is changed on it", name_style="suspect")
    if one.maintenance:
        yield item(
            "at work", f"{one.maintenance}; nothing new is marked, and nothing proven", name_style="suspect"
        )
    if one.cordoned:
        yield item("cordon", "nodeguard's own; it goes with the quarantine")
    for part in one.lemons:
        yield item("lemon", lemon(part), name_style="warning")
    if one.strange:
        yield item(
            "strange",
            f"taints that nodeguard does not know of, and leaves: {some(one.strange)}",
            name_style="warning",
        )


def _finding(one: FindingTold) -> Iterator[Line]:
    yield title(one.health.value, one.health.value, f"{one.check} - {where(one.target)}")
    if one.message:
        yield item("what", one.message)
    if one.slots:
        yield item("slots", some(map(label, one.slots)))
    if one.part:
        yield item("part", one.part)
    stale = "" if one.knowledge == Knowledge.FRESH else f"; {one.knowledge.value}"
    note = f"; {one.note}" if one.note else ""
    yield item("since", f"{moment(one.since, one.age)}{stale}{note}")
    for seen in one.evidence:
        yield item("seen", seen, "dim")
    match one.state:
        case State.MARKED:
            yield item("mark", "set")
        case State.ADVISED:
            yield item("mark", "advised")
        case State.PENDING:
            yield item("mark", state(State.PENDING, one.left))
        case State.WITHHELD:
            yield item("mark", f"withheld: {one.why}", name_style="fatal")
        case State.DRY_RUN:
            yield item("mark", f"dry run: {_would(one.why)}")
        case _:
            yield item("mark", f"none: {one.why}")
    yield item("more", f"nodeguard explain {one.check}", "dim")


def _would(why: str) -> str:
    """What a dry run would do. why: what would withhold the mark; empty for nothing."""
    return f"would be withheld: {why}" if why else "would be set; the check is not enforced"


def _want(of: State, one: WantTold) -> Line:
    """A mark that is asked for, without the finding that asks for it."""
    said = f"dry run, {_would(one.why)}" if of == State.DRY_RUN else state(of, one.left)
    why = f": {one.why}" if of == State.WITHHELD else ""
    return item("asked", f"{one.mark.value} for {one.check} on {where(one.target)}, {said}{why}")


def _ends(one: NodePage) -> Iterator[Line]:
    for charge in one.charges:
        yield item("charged", _charge(charge))
    if one.ledgers:
        yield item("budgets", ", ".join(map(ledger, one.ledgers)))
    for unread in one.unread:
        slots = f" of {some(map(label, unread.slots))}" if unread.slots not in {(), ("node",)} else ""
        yield item("not read", f"{unread.source}{slots}: {unread.why or unread.what}", name_style="warning")
    if one.left_out:
        text = f"{many(one.left_out, 'incident')}, for which there is no room; the findings are above"
        yield item("left out", text, name_style="warning")
    for incident in one.incidents:
        yield item("incident", f"{incident.name} ({incident.state.words})")


def _charge(one: ChargeTold) -> str:
    device = f", device {one.device}" if one.device else ""
    if not one.ended:
        return f"to {one.check}{device}, {ago(one.age)}"
    times = f", {one.times} times lately" if one.times > 1 else ""
    return f"to {one.check}, given back {spoken(one.ended)}{times}; the next soak is longer for it"
