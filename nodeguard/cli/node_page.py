"""The page of nodeguard explain node. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from nodeguard.cli.fleet_words import item, ledger, many, mark, moment, refused, some, spoken, title, where
from nodeguard.cli.lemon_words import lemon
from nodeguard.cli.moments import ago
from nodeguard.cli.page import Line
from nodeguard.fleet.told.node_forms import DEGRADED, ChargeTold, FindingTold, NodePage, WantTold
from nodeguard.model.finding import Knowledge
from nodeguard.model.incident import State
from nodeguard.model.mark import Mark
from nodeguard.model.slot import label

_OFF = {Mark.QUARANTINE.value: "all new work", Mark.SUSPECT.value: "new gang work"}


def node_page(one: NodePage) -> list[Line]:
    """The lines of the page."""
    word = one.health.value if one.known else "unknown"
    lines = [title(word, word, f"{one.node}: {_gist(one)}."), *_facts(one)]
    for each in one.marks:
        lines += [Line(), *mark(each)]
    for finding in one.findings:
        lines += [Line(), *_finding(finding)]
    told = {(finding.check, finding.target) for finding in one.findings}
    rest = [each for each in (*one.withheld, *one.would) if (each.check, each.target) not in told]
    ends = [*map(_want, rest), *_ends(one)]
    return [*lines, Line(), *ends] if ends else lines


def _gist(one: NodePage) -> str:
    degraded = [each for each in one.marks if each.mark == DEGRADED]
    whole = [each for each in one.marks if not (each.device or each in degraded)]
    devices = dict.fromkeys(each.device for each in one.marks if each.device)
    if whole:
        said = f"{_OFF[whole[0].mark]} is kept off it for {some(dict.fromkeys(each.check for each in whole))}"
    elif degraded:
        domains = some(dict.fromkeys(each.target for each in degraded))
        said = f"new gang work is kept off it, as {domains} {'is' if len(degraded) == 1 else 'are'} degraded"
    elif devices:
        said = f"work is kept off its {some(devices)}"
    elif one.withheld:
        said = f"not marked, though {one.withheld[0].check} asks for it: {one.withheld[0].why}"
    elif one.would:
        said = f"it would be marked for {one.would[0].check}, were that check enforced"
    elif one.findings:
        said = "nothing keeps work off it"
    else:
        said = "nothing wrong found" if one.known else "nothing is known of it"
    return f"{said}; a person's cordon keeps all work off it" if one.out else said


def _facts(one: NodePage) -> Iterator[Line]:
    if one.heard_age is None:
        yield item(
            "heard", "never by this aggregator: see that its agent runs and reaches it", name_style="warning"
        )
    else:
        said = f"{ago(one.heard_age)}; it says nothing now" if one.silent else ago(one.heard_age)
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
        yield item("held", f"{one.hold}; nothing is changed on it", name_style="suspect")
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
        case State.WITHHELD:
            yield item("mark", f"withheld: {one.why}", name_style="fatal")
        case State.OBSERVED:
            yield item("mark", "would be set, were the check enforced")
        case _:
            yield item("mark", f"none: {one.why}")
    yield item("more", f"nodeguard explain {one.check}", "dim")


def _want(one: WantTold) -> Line:
    why = f"withheld: {one.why}" if one.why else "would be set"
    return item("asked", f"{one.mark.value} for {one.check} on {where(one.target)}, {why}")


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
        yield item("incident", f"{incident.name} ({incident.state.value.lower()})")


def _charge(one: ChargeTold) -> str:
    device = f", device {one.device}" if one.device else ""
    if not one.ended:
        return f"to {one.check}{device}, {ago(one.age)}"
    times = f", {one.times} times lately" if one.times > 1 else ""
    return f"to {one.check}, given back {spoken(one.ended)}{times}; the next soak is longer for it"
