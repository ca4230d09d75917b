"""The table of nodeguard check: the verdict in words, what is wrong, what is fine, what could not be read.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from nodeguard.cli.moments import ago, spoken
from nodeguard.cli.render.page import Line, Words
from nodeguard.cli.scope import NOUNS
from nodeguard.model.finding import Finding, Fine, Knowledge, Total, Unread, Verdict
from nodeguard.model.instant import Instant
from nodeguard.model.slot import NODE, label

_FIELD = 10
_SHOWN = 4
_EVIDENCE_SHOWN = 3


def table(
    hostname: str,
    verdict: Verdict,
    instant: Instant,
    words: Mapping[str, str],
    *,
    quiet: bool = False,
    nothing: str = "",
) -> list[Line]:
    """The lines of the table.

    words: what some pieces of evidence mean. quiet: without what is fine and what was only noted. nothing:
    why nothing could be judged, where that is so and something is known of it.
    """
    lines = [headline(hostname, verdict, nothing)]
    for one in verdict.findings:
        lines += [Line(), *_finding(one, instant, words)]
    if not quiet:
        lines += _section(_noted(one) for one in verdict.noted)
        lines += _section(_total(one) for one in verdict.totals)
        lines += _section(_fine(one) for one in verdict.fine)
    lines += _section(_unread(one) for one in verdict.unread)
    return lines


def headline(hostname: str, verdict: Verdict, nothing: str = "") -> Line:
    """The verdict in words, and what could not be read. nothing: see table."""
    known = f" ({verdict.platform})" if verdict.platform else ""
    if verdict.findings:
        worst = verdict.findings[0]
        others = len(verdict.findings) - 1
        more = f", and {others} more" if others else ""
        do = worst.action.words
        said = f"{worst.title}: {_where(worst)}{more}. {do[0].upper()}{do[1:]}."
    elif verdict.judged:
        said = "nothing wrong found."
    else:
        said = f"nothing could be judged{f': {nothing}' if nothing else ''}."
    if verdict.unread:
        said += f" Not read: {', '.join(dict.fromkeys(one.source for one in verdict.unread))}."
    word = (verdict.known_health or Knowledge.UNKNOWN).value
    return Line((Words(word.upper(), word), Words("  ")), f"{hostname}{known}: {said}", "strong")


def _where(one: Finding) -> str:
    return "the node" if one.target == NODE else label(one.target)


def _finding(one: Finding, instant: Instant, words: Mapping[str, str]) -> Iterator[Line]:
    title = f"{one.title} - {_where(one)}"
    yield Line((Words(one.health.value.upper(), one.health.value), Words("  ")), title, "strong")
    yield _field("what", one.message)
    if one.slots:
        yield _field("slots", _some([label(slot) for slot in one.slots]))
    if one.part:
        yield _field("part", one.part)
    yield _field(
        "since",
        f"{spoken(one.since)}, {ago(instant.wall - one.since)}" + (f"; {one.note}" if one.note else ""),
    )
    for seen in one.evidence[:_EVIDENCE_SHOWN]:
        times = f" ({seen.count} times)" if seen.count > 1 else ""
        means = f" ({words[seen.what]})" if seen.what in words else ""
        yield _field("seen", f"{seen.source}: {_joined(seen.what)}{means}{times}", "dim")
    yield _field("do", f"{one.action.words}. {one.remedy}")
    yield _field("more", f"nodeguard explain {one.check}", "dim")


def _joined(text: str) -> str:
    """The lines of a message of several lines as one, without the tag that each of them begins with."""
    first, *rest = text.splitlines() or [""]
    tag = first.partition(":")[0] + ":"
    return " ".join((first, *(line.removeprefix(tag).strip() for line in rest)))


def _field(name: str, text: str, style: str = "") -> Line:
    return Line((Words(f"  {name:<{_FIELD - 2}}", "dim"),), text, style)


def _section(lines: Iterator[Line]) -> list[Line]:
    found = list(lines)
    return [Line(), *found] if found else []


def _noted(one: Finding) -> Line:
    times = sum(seen.count for seen in one.evidence)
    count = f", {times} times" if times > 1 else ""
    return Line((Words(f"{'noted':<{_FIELD}}", "dim"),), f"{_where(one)}: {one.message}{count} ({one.title})")


def _total(one: Total) -> Line:
    name = one.signal.partition(".")[2]
    text = f"{label(one.slot)}: {name} {one.value:.0f} in total; whether it rises takes --for"
    return Line((Words(f"{'counted':<{_FIELD}}", "dim"),), text)


def _fine(one: Fine) -> Line:
    kinds = (
        f"{count} {NOUNS[kind][count != 1]}" for kind, count in sorted(one.slots.items()) if kind != NODE
    )
    on = ", ".join(kinds)
    checks = f"{one.checks} {'check' if one.checks == 1 else 'checks'}"
    said = f"{one.family}: {checks}{f' on {on}' if on else ''}"
    return Line((Words(f"{'fine':<{_FIELD}}", "ok"),), said)


def _unread(one: Unread) -> Line:
    where = "" if one.slots == (NODE,) else f" of {_some([label(slot) for slot in one.slots])}"
    what = one.source if one.what == one.source else f"{one.source}{where}: {_some(one.what.split(', '))}"
    return Line((Words(f"{'not read':<{_FIELD}}", "warning"),), f"{what}: {one.why}")


def _some(names: Sequence[str]) -> str:
    """The first few of some names, and how many there are besides."""
    rest = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
