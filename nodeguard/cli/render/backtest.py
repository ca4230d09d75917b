"""The page of nodeguard backtest. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nodeguard.backtest.backtest import BacktestResult, PolicyDifference, compare_policies
from nodeguard.backtest.finding_episodes import EpisodeEnd
from nodeguard.backtest.mark_tracker import MarkEnd
from nodeguard.backtest.policy_result import CheckResult, MarkResult, PolicyResult
from nodeguard.cli.render.fleet_text import MARK_STYLES, count_noun, item_line, target_text, title_line
from nodeguard.cli.render.terminal import StyledLine, StyledText, printable
from nodeguard.cli.timestamps import format_time
from nodeguard.judge.formatting import format_duration
from nodeguard.model.incident import IncidentState
from nodeguard.model.policy import Policy

# Marks, reasons and checks that are told where not all are wanted.
_MARKS = 10
_REASONS = 6
_CHECKS = 20


def backtest_lines(
    files: Sequence[str], policies: Sequence[Policy], found: BacktestResult, columns: int, *, everything: bool
) -> list[StyledLine]:
    """The lines of the page, of so many columns. everything: each mark, not the latest alone."""
    lines = [_headline(files, found), *_told(found)]
    for file, policy, one in zip(files, policies, found.results, strict=True):
        lines += [StyledLine(), *_account(file, policy, one, columns)]
    if len(found.results) == 2:
        differs = compare_policies(*found.results)
        lines += [StyledLine(), *_difference(files, found.results, differs, everything=everything)]
    else:
        lines += _marks(found.results[0].marks, everything=everything)
    return lines


def _headline(files: Sequence[str], found: BacktestResult) -> StyledLine:
    long = format_duration(max(1.0, found.until - found.since))
    said = [f"{file} marks {one.nodes}" for file, one in zip(files, found.results, strict=True)]
    return title_line(
        "backtest", "strong", f"{count_noun(found.nodes, 'node')} in {long}: {'; '.join(said)}."
    )


def _told(found: BacktestResult) -> Iterator[StyledLine]:
    yield item_line("time", f"{format_time(found.since)} to {format_time(found.until)}")
    yield item_line(
        "told", f"{count_noun(found.recent_reports, 'transition')} of {count_noun(found.nodes, 'node')}"
    )


def _marked(one: PolicyResult) -> list[MarkResult]:
    return [each for each in one.marks if each.state == IncidentState.MARKED]


def _account(file: str, policy: Policy, one: PolicyResult, columns: int) -> Iterator[StyledLine]:
    yield title_line("policy", "strong", file)
    marked = _marked(one)
    at = f", first at {format_time(one.max_marked_at)}" if one.max_marked else ""
    said = f"{count_noun(len(marked), 'mark')} of {count_noun(one.nodes, 'node')}, {_hours(one.seconds)} node-hours"
    yield item_line(
        "marked",
        f"{said}; {count_noun(one.max_marked, 'node')} at a time at most{at}" if marked else "nothing",
    )
    withheld = sum(each.state == IncidentState.WITHHELD for each in one.marks)
    if withheld:
        rest = len(one.reasons) - _REASONS
        whys = "; ".join(f"{why} ({number})" for why, number in one.reasons[:_REASONS])
        more = f"; and {rest} more reasons" if rest > 0 else ""
        yield item_line("withheld", f"{count_noun(withheld, 'mark')}: {whys}{more}")
    dry_run = [each for each in one.marks if each.state == IncidentState.DRY_RUN]
    if dry_run:
        over = sum(bool(each.reasons) for each in dry_run)
        blocked = f", {over} of which something would withhold" if over else ""
        yield item_line(
            "dry run", f"{count_noun(len(dry_run), 'mark')} of checks that are not enforced{blocked}"
        )
    settled = sum(each.ended_in_grace for each in one.checks)
    if settled:
        yield item_line("settled", f"{count_noun(settled, 'finding')} over within their grace period")
    if one.checks:
        yield StyledLine()
        yield from _table(one.checks, columns)
        yield StyledLine()
        yield from _legend(policy, one.checks)


_HEADS = ("CHECK", "MARK", "MARKS", "NODES", "HOURS", "BRIEF", "AGAIN", "WORSE", "UNSET", "SPARED", "MISSED")

# Columns of words; the others are numbers.
_WORDS = 2


def _table(checks: Sequence[CheckResult], columns: int) -> Iterator[StyledLine]:
    """What each check came to; on a narrow page its name has a line of its own."""
    rows = [_cells(one) for one in checks[:_CHECKS]]
    wide = [max(map(len, cells)) for cells in zip(_HEADS, *rows, strict=True)]
    narrow = sum(wide) + 2 * len(wide[1:]) > columns
    if narrow:
        wide[0] = len(_HEADS[0])
    yield StyledLine(tuple(StyledText(text, "dim") for text in _spread(_HEADS, wide)))
    for one, cells in zip(checks, rows, strict=False):
        styles = ("", MARK_STYLES[one.mark], *("dim" if cell == "-" else "" for cell in cells[2:]))
        if narrow:
            yield StyledLine((StyledText(cells[0], "strong"),))
        texts = _spread(("", *cells[1:]) if narrow else cells, wide)
        yield StyledLine(tuple(StyledText(text, style) for text, style in zip(texts, styles, strict=True)))
    if len(checks) > _CHECKS:
        yield StyledLine(text=f"and {len(checks) - _CHECKS} more checks: --format json has all", style="dim")


def _spread(cells: Sequence[str], wide: Sequence[int]) -> list[str]:
    """Cells under one another: words to the left, numbers to the right."""
    return [
        f"{text:<{width}}  " if place < _WORDS else f"{text:>{width}}  "
        for place, (text, width) in enumerate(zip(cells, wide, strict=True))
    ]


def _cells(one: CheckResult) -> tuple[str, ...]:
    numbers = (one.brief, one.recurred, one.escalated, one.withheld + one.dry_run, one.spared, one.missed)
    marks = (one.marked, one.nodes)
    return (
        printable(one.check),
        one.mark.value,
        *(str(number) if number else "-" for number in marks),
        _hours(one.seconds) if one.marked else "-",
        *(str(number) if number else "-" for number in numbers),
    )


def _legend(policy: Policy, checks: Sequence[CheckResult]) -> Iterator[StyledLine]:
    soak, forget = format_duration(policy.soak.first), format_duration(policy.soak.forget)
    told = (
        ("brief", f"over by itself within {soak} of the mark", any(one.brief for one in checks)),
        ("again", f"found again within {forget}", any(one.recurred for one in checks)),
        ("worse", f"fatal then, or within {forget}", any(one.escalated for one in checks)),
        ("unset", "withheld, or a dry run", any(one.withheld + one.dry_run for one in checks)),
        ("spared", "of these, brief and not again", any(one.spared for one in checks)),
        ("missed", "of these, again or worse", any(one.missed for one in checks)),
    )
    for name, text, is_there in told:
        if is_there:
            yield item_line(name, text, "dim")


def _marks(entries: Sequence[MarkResult], *, everything: bool) -> Iterator[StyledLine]:
    """Marks, the latest first."""
    marked = [one for one in reversed(entries) if one.state == IncidentState.MARKED]
    shown = marked if everything else marked[:_MARKS]
    for one in shown:
        yield StyledLine()
        yield from _mark(one)
    if len(marked) > len(shown):
        yield StyledLine()
        yield StyledLine(
            text=f"and {count_noun(len(marked) - len(shown), 'earlier mark')}: --all tells of each"
        )


def _mark(one: MarkResult) -> Iterator[StyledLine]:
    asked = one.request
    word = asked.mark.value
    lasts = f"for {format_duration(max(one.end - one.start, 1.0))}" if one.end is not None else "to the end"
    head = (StyledText(f"{word.upper():<10}", MARK_STYLES[asked.mark]), StyledText("  "))
    yield StyledLine(
        head,
        f"{asked.node}, {target_text(asked.target)}: {asked.check}, {format_time(one.start)} {lasts}",
        "strong",
    )
    yield StyledLine((StyledText(" " * 12),), _next(one))


_OVER = {
    EpisodeEnd.RESOLVED: "over by itself",
    EpisodeEnd.REBOOT: "over with a reboot",
    EpisodeEnd.COMPONENT_REPLACED: "over with another part in its place",
    EpisodeEnd.NODE_DELETED: "its node left",
}
_ENDS = {
    MarkEnd.PROVEN: "given back for proof",
    MarkEnd.RETRACTED: "given back, as its check is held",
    MarkEnd.REMOVED: "taken away by a person",
    MarkEnd.REPLACED: "another mark took its place",
    MarkEnd.NODE_DELETED: "gone with its node",
}


def _next(one: MarkResult) -> str:
    """What happened next."""
    after = one.followup
    said = [
        f"{_OVER[after.finding_end]} after {format_duration(after.seconds or 0.0)}"
        if after.finding_end in _OVER
        else "not over"
    ]
    said += ["found again"] if after.recurred else []
    said += ["found to be fatal"] if after.escalated else []
    said += (
        [_ENDS[one.end_reason]] if one.end_reason in _ENDS and one.end_reason != MarkEnd.NODE_DELETED else []
    )
    said += (
        ["not given back: no proof of it, or its soak goes on"] if one.end is None and after.seconds else []
    )
    return "; ".join(said)


def _difference(
    files: Sequence[str], accounts: Sequence[PolicyResult], found: PolicyDifference, *, everything: bool
) -> Iterator[StyledLine]:
    first, second = files
    hours = accounts[1].seconds - accounts[0].seconds
    yield title_line("difference", "strong", f"{second} against {first}")
    yield item_line("both", f"{count_noun(len(found.both), 'mark')} under both policies")
    yield item_line("no more", f"{count_noun(len(found.first), 'mark')} under {first} alone")
    yield item_line("new", f"{count_noun(len(found.second), 'mark')} under {second} alone")
    yield item_line("hours", f"{'+' if hours >= 0 else '-'}{_hours(abs(hours))} node-hours")
    for name, entries in ((first, found.first), (second, found.second)):
        if entries:
            yield StyledLine()
            yield StyledLine(text=f"under {name} alone:", style="strong")
            yield from _marks(entries, everything=everything)


def _hours(seconds: float) -> str:
    hours = seconds / 3600.0
    return f"{hours:.1f}" if hours < 100 else f"{hours:.0f}"
