"""The view of nodeguard backtest. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nodeguard.backtest.backtest import BacktestResult, PolicyDifference, compare_policies
from nodeguard.backtest.finding_episodes import EpisodeEnd
from nodeguard.backtest.mark_tracker import MarkEnd
from nodeguard.backtest.policy_result import MarkResult, PolicyCheckResult, PolicyResult
from nodeguard.cli.render.fleet_text import MARK_STYLES, count_noun, item_line, target_text, title_line
from nodeguard.cli.render.terminal import StyledLine, StyledText, format_time, printable
from nodeguard.judge.formatting import format_duration
from nodeguard.model.incident import IncidentState
from nodeguard.model.policy import Policy

# Marks, reasons and checks in a view without --all.
_MARKS = 10
_REASONS = 6
_CHECKS = 20


def backtest_lines(
    files: Sequence[str],
    policies: Sequence[Policy],
    result: BacktestResult,
    columns: int,
    *,
    everything: bool,
) -> list[StyledLine]:
    """Return the lines of the view. columns: of the terminal. everything: all marks, not only the latest."""
    lines = [_headline(files, result), *_time_range(result)]
    for file, policy, account in zip(files, policies, result.results, strict=True):
        lines += [StyledLine(), *_account(file, policy, account, columns)]
    if len(result.results) == 2:
        changes = compare_policies(*result.results)
        lines += [StyledLine(), *_difference(files, result.results, changes, everything=everything)]
    else:
        lines += _marks(result.results[0].marks, everything=everything)
    return lines


def _headline(files: Sequence[str], result: BacktestResult) -> StyledLine:
    period = format_duration(max(1.0, result.until - result.since))
    texts = [f"{file} marks {account.nodes}" for file, account in zip(files, result.results, strict=True)]
    return title_line(
        "backtest", "strong", f"{count_noun(result.nodes, 'node')} in {period}: {'; '.join(texts)}."
    )


def _time_range(result: BacktestResult) -> Iterator[StyledLine]:
    yield item_line("time", f"{format_time(result.since)} to {format_time(result.until)}")
    yield item_line(
        "reports", f"{count_noun(result.recent_reports, 'transition')} of {count_noun(result.nodes, 'node')}"
    )


def _marked(account: PolicyResult) -> list[MarkResult]:
    return [entry for entry in account.marks if entry.state == IncidentState.MARKED]


def _account(file: str, policy: Policy, account: PolicyResult, columns: int) -> Iterator[StyledLine]:
    yield title_line("policy", "strong", file)
    marked = _marked(account)
    first = f", first at {format_time(account.max_marked_at)}" if account.max_marked else ""
    nodes = count_noun(account.nodes, "node")
    text = f"{count_noun(len(marked), 'mark')} of {nodes}, {_hours(account.seconds)} node-hours"
    yield item_line(
        "marked",
        f"{text}; {count_noun(account.max_marked, 'node')} at one time{first}" if marked else "nothing",
    )
    withheld = sum(item.state == IncidentState.WITHHELD for item in account.marks)
    if withheld:
        rest = len(account.reasons) - _REASONS
        reasons = "; ".join(f"{reason} ({count})" for reason, count in account.reasons[:_REASONS])
        more = f"; and {rest} more reasons" if rest > 0 else ""
        yield item_line("withheld", f"{count_noun(withheld, 'mark')}: {reasons}{more}")
    dry_run = [item for item in account.marks if item.state == IncidentState.DRY_RUN]
    if dry_run:
        over = sum(bool(item.reasons) for item in dry_run)
        blocked = f", {over} of which something would withhold" if over else ""
        yield item_line(
            "dry run", f"{count_noun(len(dry_run), 'mark')} of checks that are not enforced{blocked}"
        )
    settled = sum(item.ended_in_grace for item in account.checks)
    if settled:
        yield item_line("settled", f"{count_noun(settled, 'finding')} over within their grace period")
    if account.checks:
        yield StyledLine()
        yield from _table(account.checks, columns)
        yield StyledLine()
        yield from _legend(policy, account.checks)


_HEADS = ("CHECK", "MARK", "MARKS", "NODES", "HOURS", "BRIEF", "AGAIN", "WORSE", "UNSET", "SPARED", "MISSED")

# Columns of text; the others are numbers.
_TEXT_COLUMNS = 2


def _table(checks: Sequence[PolicyCheckResult], columns: int) -> Iterator[StyledLine]:
    """Yield a row for each check; on a narrow terminal its name has a line of its own."""
    rows = [_cells(check) for check in checks[:_CHECKS]]
    widths = [max(map(len, cells)) for cells in zip(_HEADS, *rows, strict=True)]
    narrow = sum(widths) + 2 * len(widths[1:]) > columns
    if narrow:
        widths[0] = len(_HEADS[0])
    yield StyledLine(tuple(StyledText(text, "dim") for text in _spread(_HEADS, widths)))
    for check, cells in zip(checks, rows, strict=False):
        styles = ("", MARK_STYLES[check.mark], *("dim" if cell == "-" else "" for cell in cells[2:]))
        if narrow:
            yield StyledLine((StyledText(cells[0], "strong"),))
        texts = _spread(("", *cells[1:]) if narrow else cells, widths)
        yield StyledLine(tuple(StyledText(text, style) for text, style in zip(texts, styles, strict=True)))
    if len(checks) > _CHECKS:
        yield StyledLine(text=f"and {len(checks) - _CHECKS} more checks: -o json lists them", style="dim")


def _spread(cells: Sequence[str], widths: Sequence[int]) -> list[str]:
    """Return aligned cells: text to the left, numbers to the right."""
    return [
        f"{text:<{width}}  " if column < _TEXT_COLUMNS else f"{text:>{width}}  "
        for column, (text, width) in enumerate(zip(cells, widths, strict=True))
    ]


def _cells(check: PolicyCheckResult) -> tuple[str, ...]:
    numbers = (
        check.brief,
        check.recurred,
        check.escalated,
        check.withheld + check.dry_run,
        check.spared,
        check.missed,
    )
    marks = (check.marked, check.nodes)
    return (
        printable(check.check),
        check.mark.value,
        *(str(number) if number else "-" for number in marks),
        _hours(check.seconds) if check.marked else "-",
        *(str(number) if number else "-" for number in numbers),
    )


def _legend(policy: Policy, checks: Sequence[PolicyCheckResult]) -> Iterator[StyledLine]:
    soak, forget = format_duration(policy.soak.first), format_duration(policy.soak.forget)
    entries = (
        ("brief", f"resolved by itself within {soak} of the mark", any(check.brief for check in checks)),
        ("again", f"the fault returned within {forget}", any(check.recurred for check in checks)),
        ("worse", f"became fatal, or fatal within {forget}", any(check.escalated for check in checks)),
        ("unset", "withheld, or a dry run", any(check.withheld + check.dry_run for check in checks)),
        ("spared", "of these, brief and not again", any(check.spared for check in checks)),
        ("missed", "of these, again or worse", any(check.missed for check in checks)),
    )
    for name, text, is_shown in entries:
        if is_shown:
            yield item_line(name, text, "dim")


def _marks(entries: Sequence[MarkResult], *, everything: bool) -> Iterator[StyledLine]:
    """Yield marks, latest first."""
    marked = [entry for entry in reversed(entries) if entry.state == IncidentState.MARKED]
    shown = marked if everything else marked[:_MARKS]
    for entry in shown:
        yield StyledLine()
        yield from _mark(entry)
    if len(marked) > len(shown):
        yield StyledLine()
        yield StyledLine(text=f"and {count_noun(len(marked) - len(shown), 'earlier mark')}: --all lists them")


def _mark(entry: MarkResult) -> Iterator[StyledLine]:
    request = entry.request
    mark = request.mark.value
    lasts = (
        f"for {format_duration(max(entry.end - entry.start, 1.0))}" if entry.end is not None else "to the end"
    )
    head = (StyledText(f"{mark.upper():<10}", MARK_STYLES[request.mark]), StyledText("  "))
    yield StyledLine(
        head,
        f"{request.node}, {target_text(request.target)}: {request.check}, {format_time(entry.start)} {lasts}",
        "strong",
    )
    yield StyledLine((StyledText(" " * 12),), _next(entry))


_OVER = {
    EpisodeEnd.RESOLVED: "resolved by itself",
    EpisodeEnd.REBOOT: "resolved by a reboot",
    EpisodeEnd.COMPONENT_REPLACED: "resolved by replaced hardware",
    EpisodeEnd.NODE_DELETED: "its node was removed",
}
_ENDS = {
    MarkEnd.PROVEN: "released after the check passed",
    MarkEnd.RETRACTED: "released, as its check was suppressed",
    MarkEnd.REMOVED: "removed by an operator",
    MarkEnd.REPLACED: "replaced by another mark",
    MarkEnd.NODE_DELETED: "removed with its node",
}


def _next(entry: MarkResult) -> str:
    """Return what happened next."""
    after = entry.followup
    texts = [
        f"{_OVER[after.finding_end]} after {format_duration(after.seconds or 0.0)}"
        if after.finding_end in _OVER
        else "not resolved"
    ]
    texts += ["the fault returned"] if after.recurred else []
    texts += ["became fatal"] if after.escalated else []
    texts += (
        [_ENDS[entry.end_reason]]
        if entry.end_reason in _ENDS and entry.end_reason != MarkEnd.NODE_DELETED
        else []
    )
    texts += (
        ["not released: the check has not passed, or the soak period is not over"]
        if entry.end is None and after.seconds
        else []
    )
    return "; ".join(texts)


def _difference(
    files: Sequence[str], accounts: Sequence[PolicyResult], changes: PolicyDifference, *, everything: bool
) -> Iterator[StyledLine]:
    first, second = files
    hours = accounts[1].seconds - accounts[0].seconds
    yield title_line("difference", "strong", f"{second} against {first}")
    yield item_line("both", f"{count_noun(len(changes.both), 'mark')} under both policies")
    yield item_line("no more", f"{count_noun(len(changes.first), 'mark')} under {first} only")
    yield item_line("new", f"{count_noun(len(changes.second), 'mark')} under {second} only")
    yield item_line("hours", f"{'+' if hours >= 0 else '-'}{_hours(abs(hours))} node-hours")
    for name, entries in ((first, changes.first), (second, changes.second)):
        if entries:
            yield StyledLine()
            yield StyledLine(text=f"under {name} only:", style="strong")
            yield from _marks(entries, everything=everything)


def _hours(seconds: float) -> str:
    hours = seconds / 3600.0
    return f"{hours:.1f}" if hours < 100 else f"{hours:.0f}"
