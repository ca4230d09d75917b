"""The page of nodeguard status. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from nodeguard.cli.moments import ago
from nodeguard.cli.render.domain_words import held, view
from nodeguard.cli.render.fleet_words import (
    dry_run,
    item,
    ledger,
    many,
    place,
    refused,
    some,
    state,
    time_left,
    title,
)
from nodeguard.cli.render.page import Line, Words
from nodeguard.cli.render.repeat_offenders import lemons
from nodeguard.fleet_api.forms import Agents, IncidentLine, LeftOut, Marked, Nodes, PolicyTold, Status
from nodeguard.fleet_api.service import STANDALONE
from nodeguard.judge.words import span
from nodeguard.model.incident import State


def status_page(one: Status) -> list[Line]:
    """The lines of the page."""
    lines = [_headline(one), *_alarms(one), *_unheard(one), *_facts(one)]
    for each in one.worst:
        lines += [Line(), *_incident(each)]
    return lines


def _headline(one: Status) -> Line:
    nodes = one.nodes
    counts = [
        (nodes.fatal, "fatal"),
        (nodes.suspect, "suspect"),
        (nodes.warning, "warning"),
        (nodes.unknown, "unknown"),
    ]
    wrong = [f"{number} {word}" for number, word in counts if number]
    said = f"{many(one.agents.expected, 'node')}: {', '.join(wrong) or 'nothing wrong found'}"
    if one.withheld.marks:
        said += f"; {many(one.withheld.marks, 'mark')} withheld"
    if not one.agents.expected:
        said = "no node is known yet"
    word = next((word for number, word in counts if number), "ok" if nodes.ok else "unknown")
    return title(word, word, f"{said}.")


def _alarms(one: Status) -> Iterator[Line]:
    """The mode where nothing is enforced, and what keeps nodeguard from its work."""
    if one.policy.observes:
        would = dry_run(one.dry_run) or f"No mark is {'due yet' if one.pending.marks else 'asked for'}"
        text = f"OBSERVE MODE - no new mark is set. {would}."
        yield Line(text=text, style="warning")
    if one.paused:
        yield item("paused", f"nothing new is marked: {one.paused}", name_style="suspect")
    if one.frozen:
        yield item("frozen", f"nothing new is marked: {one.frozen}", name_style="fatal")
    if one.replica.waiting and one.replica.leads:
        yield item("waiting", f"nothing is written: {one.replica.waiting}", name_style="suspect")
    if one.policy.error:
        yield item("policy", f"kept out: {one.policy.error}", name_style="fatal")
    for each in one.blamed:
        if each.state == State.WITHHELD:
            yield item("domain", f"{each.domain} is to blame, and not marked: {each.why}", name_style="fatal")
    for check in one.held:
        yield item("check", held(check), name_style="suspect")


def _unheard(one: Status) -> Iterator[Line]:
    """What keeps agents from reporting."""
    if one.shortage:
        yield item("open files", one.shortage, name_style="fatal")
    for messages in one.refused:
        yield refused(messages)
    if one.refused_more:
        yield item(
            "refused", f"messages of {many(one.refused_more, 'more node')}: see nodeguard explain node"
        )


def _facts(one: Status) -> Iterator[Line]:
    yield item("agents", _agents(one.agents))
    yield item("nodes", _nodes(one.nodes))
    marked = [_marked(mark, each) for mark, each in one.marked.items() if each.nodes or each.devices]
    yield item("advised" if one.replica.leader == STANDALONE else "marked", "; ".join(marked) or "nothing")
    if one.withheld.marks:
        reasons = "; ".join(f"{each.why} ({each.marks})" for each in one.reasons)
        yield item(
            "withheld", f"{many(one.withheld.marks, 'mark')} of {many(one.withheld.nodes, 'node')}: {reasons}"
        )
    if one.pending.marks:
        marks = f"{many(one.pending.marks, 'mark')} of {many(one.pending.nodes, 'node')}"
        first = "" if one.pending.marks == 1 else "the first has "
        yield item("pending", f"{marks} in the grace period: {first}{time_left(one.pending_left)}")
    if one.would.marks and not one.policy.observes:
        yield item("dry run", f"{dry_run(one.dry_run)}; the checks are not enforced")
    if one.views:
        yield item("views", "; ".join(map(view, one.views)))
    if one.domains:
        names = ", ".join(each.domain for each in one.blamed)
        rest = sum(one.domains.values()) - len(one.blamed)
        counts = ", ".join(f"{number} {each.words}" for each, number in one.domains.items())
        yield item("domains", f"{counts}: {names}" + (f" and {rest} more" if rest else ""))
    if one.lemons:
        yield item("lemons", lemons(one), name_style="warning")
    more = f" and {one.ledgers_more} more that are half full" if one.ledgers_more else ""
    yield item("budgets", ", ".join(map(ledger, one.ledgers)) + more or "none: there are no nodes")
    states = [f"{number} {each.words}" for each, number in one.incidents.items() if number]
    yield item("incidents", ", ".join(states) or "none")
    if one.left_out.incidents:
        yield item("left out", _left_out(one.left_out), name_style="warning")
    yield item("policy", f"{_mode(one.policy)}; {one.policy.file or 'built in, no file'}")
    yield item("leader", _leader(one))


def _agents(one: Agents) -> str:
    """How many agents report, and how many do not: all that are expected together."""
    said = f"{one.expected} expected, {one.heard - one.stale} reporting"
    said += f", {one.stale} stale" if one.stale else ""
    never = one.silent - one.stale
    return said + (f", {never} without a report since this aggregator started" if never else "")


def _mode(one: PolicyTold) -> str:
    """The mode of a policy, and the checks for which rules set another."""
    if not one.rules:
        return one.mode
    rules = (("enforced", one.enforced), ("observed", one.observed))
    said = "".join(f"; {word}: {', '.join(checks)}" for word, checks in rules if checks)
    return f"{one.mode} by default{said}"


def _left_out(left_out: LeftOut) -> str:
    count = f"{many(left_out.incidents, 'incident')} of {many(left_out.nodes, 'node')}"
    return f"{count}, for which there is no room: see the findings of {some(left_out.most)}"


def _nodes(nodes: Nodes) -> str:
    health = ("ok", "warning", "suspect", "fatal", "unknown")
    said = [f"{getattr(nodes, word)} {word}" for word in health if getattr(nodes, word) or word == "ok"]
    others = {
        "blind": "not read in part",
        "held": "on hold",
        "maintenance": "under maintenance",
        "out": "cordoned by people",
    }
    beside = [f"{getattr(nodes, word)} {text}" for word, text in others.items() if getattr(nodes, word)]
    return ", ".join(said) + (f"; {', '.join(beside)}" if beside else "")


def _marked(name: str, one: Marked) -> str:
    what = [many(one.nodes, "node")] if one.nodes else []
    what += [many(one.devices, "GPU")] if one.devices else []
    return f"{name} {' and '.join(what)}"


def _leader(one: Status) -> str:
    replica = one.replica
    if replica.leader == STANDALONE:
        who = STANDALONE
    else:
        who = (replica.leader or "none") + (" (this one)" if replica.leads else "")
    planned = "no plan yet" if replica.plan_age is None else f"planned {ago(replica.plan_age)}"
    up = f"{', ' if replica.leads else '; this one '}up {span(replica.age)}, {planned}"
    version = f"; nodeguard {replica.nodeguard}" if replica.nodeguard else ""
    return f"{who}{up}{version}"


# What is done about an incident that says nothing else.
_KEPT = {State.MARKED: "work is kept away", State.ADVISED: "advice: keep work away"}


def _incident(one: IncidentLine) -> Iterator[Line]:
    word = one.health.value
    alike = f"; {one.alike} more alike" if one.alike else ""
    says = one.says or _KEPT.get(one.state, "")
    known = f" (acknowledged: {one.acknowledged})" if one.acknowledged else ""
    head = (Words(f"{word.upper():<7}", word), Words("  "))
    cause = f"{one.cause}, {state(one.state, one.left)}{known}"
    if not (one.node or one.domain):
        cause = "suppressed"
    text = f"{place(one.node, one.domain, one.resource)}: {cause}, {span(one.age)} old"
    yield Line(head, text, "strong")
    of = f"{one.domain}: " if one.domain else f"{place(one.node, one.domain, one.resource)} is suppressed: "
    yield Line((Words(" " * 9),), f"{says.removeprefix(of)}{alike}")
    yield Line((Words(" " * 9),), f"nodeguard explain incident {one.name}", "dim")
