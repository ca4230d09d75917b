"""The table of nodeguard check: the verdict in words, what is wrong, what is fine, what could not be read.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from nodeguard.cli.render.terminal import StyledLine, StyledText
from nodeguard.cli.scope import NOUNS
from nodeguard.cli.timestamps import format_age, format_time
from nodeguard.model.finding import CounterTotal, DataStatus, Finding, PassedFamily, ReadFailure, Verdict
from nodeguard.model.instant import Instant
from nodeguard.model.target import NODE, target_label

_FIELD = 10
_SHOWN = 4
_EVIDENCE_SHOWN = 3


def verdict_lines(
    hostname: str,
    verdict: Verdict,
    instant: Instant,
    words: Mapping[str, str],
    *,
    quiet: bool = False,
    nothing: str = "",
) -> list[StyledLine]:
    """The lines of the table.

    words: what some pieces of evidence mean. quiet: without what is fine and what was only noted. nothing:
    why nothing could be judged, where that is so and something is known of it.
    """
    lines = [headline(hostname, verdict, nothing)]
    for one in verdict.findings:
        lines += [StyledLine(), *_finding(one, instant, words)]
    if not quiet:
        lines += _section(_noted(one) for one in verdict.informational)
        lines += _section(_total(one) for one in verdict.counter_totals)
        lines += _section(_fine(one) for one in verdict.passed)
    lines += _section(_unread(one) for one in verdict.read_failures)
    return lines


def headline(hostname: str, verdict: Verdict, nothing: str = "") -> StyledLine:
    """The verdict in words, and what could not be read. nothing: see table."""
    known = f" ({verdict.platform})" if verdict.platform else ""
    if verdict.findings:
        worst = verdict.findings[0]
        others = len(verdict.findings) - 1
        more = f", and {others} more" if others else ""
        do = worst.action.phrase
        said = f"{worst.title}: {_where(worst)}{more}. {do[0].upper()}{do[1:]}."
    elif verdict.evaluated:
        said = "nothing wrong found."
    else:
        said = f"nothing could be judged{f': {nothing}' if nothing else ''}."
    if verdict.read_failures:
        said += f" Not read: {', '.join(dict.fromkeys(one.source for one in verdict.read_failures))}."
    word = (verdict.known_health or DataStatus.UNKNOWN).value
    return StyledLine(
        (StyledText(word.upper(), word), StyledText("  ")), f"{hostname}{known}: {said}", "strong"
    )


def _where(one: Finding) -> str:
    return "the node" if one.target == NODE else target_label(one.target)


def _finding(one: Finding, instant: Instant, words: Mapping[str, str]) -> Iterator[StyledLine]:
    title = f"{one.title} - {_where(one)}"
    yield StyledLine(
        (StyledText(one.health.value.upper(), one.health.value), StyledText("  ")), title, "strong"
    )
    yield _field("what", one.message)
    if one.targets:
        yield _field("slots", _some([target_label(slot) for slot in one.targets]))
    if one.component:
        yield _field("part", one.component)
    yield _field(
        "since",
        f"{format_time(one.since)}, {format_age(instant.wall - one.since)}"
        + (f"; {one.note}" if one.note else ""),
    )
    for seen in one.evidence[:_EVIDENCE_SHOWN]:
        times = f" ({seen.count} times)" if seen.count > 1 else ""
        means = f" ({words[seen.text]})" if seen.text in words else ""
        yield _field("seen", f"{seen.source}: {_joined(seen.text)}{means}{times}", "dim")
    yield _field("do", f"{one.action.phrase}. {one.remedy}")
    yield _field("more", f"nodeguard explain {one.check}", "dim")


def _joined(text: str) -> str:
    """The lines of a message of several lines as one, without the tag that each of them begins with."""
    first, *rest = text.splitlines() or [""]
    tag = first.partition(":")[0] + ":"
    return " ".join((first, *(line.removeprefix(tag).strip() for line in rest)))


def _field(name: str, text: str, style: str = "") -> StyledLine:
    return StyledLine((StyledText(f"  {name:<{_FIELD - 2}}", "dim"),), text, style)


def _section(lines: Iterator[StyledLine]) -> list[StyledLine]:
    found = list(lines)
    return [StyledLine(), *found] if found else []


def _noted(one: Finding) -> StyledLine:
    times = sum(seen.count for seen in one.evidence)
    count = f", {times} times" if times > 1 else ""
    return StyledLine(
        (StyledText(f"{'noted':<{_FIELD}}", "dim"),), f"{_where(one)}: {one.message}{count} ({one.title})"
    )


def _total(one: CounterTotal) -> StyledLine:
    name = one.signal.partition(".")[2]
    text = f"{target_label(one.target)}: {name} {one.value:.0f} in total; whether it rises takes --for"
    return StyledLine((StyledText(f"{'counted':<{_FIELD}}", "dim"),), text)


def _fine(one: PassedFamily) -> StyledLine:
    kinds = (
        f"{count} {NOUNS[kind][count != 1]}" for kind, count in sorted(one.targets.items()) if kind != NODE
    )
    on = ", ".join(kinds)
    checks = f"{one.checks} {'check' if one.checks == 1 else 'checks'}"
    said = f"{one.family}: {checks}{f' on {on}' if on else ''}"
    return StyledLine((StyledText(f"{'fine':<{_FIELD}}", "ok"),), said)


def _unread(one: ReadFailure) -> StyledLine:
    where = "" if one.targets == (NODE,) else f" of {_some([target_label(slot) for slot in one.targets])}"
    what = (
        one.source if one.subject == one.source else f"{one.source}{where}: {_some(one.subject.split(', '))}"
    )
    return StyledLine((StyledText(f"{'not read':<{_FIELD}}", "warning"),), f"{what}: {one.reason}")


def _some(names: Sequence[str]) -> str:
    """The first few of some names, and how many there are besides."""
    rest = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
