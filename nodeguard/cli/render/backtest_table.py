"""The table of checks in the view of nodeguard backtest. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nodeguard.backtest.mark_results import PolicyCheckResult
from nodeguard.cli.render.terminal import StyledLine, StyledText
from nodeguard.fleet_api.view import Field
from nodeguard.judge.formatting import format_duration
from nodeguard.model.policy import Policy
from nodeguard.simulate.figures import wilson

# Checks in the table; JSON has all.
_CHECKS = 20

_HEADS = ("CHECK", "MARK", "MARKS", "NODES", "HOURS", "BRIEF", "AGAIN", "WORSE", "UNSET", "SPARED", "MISSED")

# Columns of text; the others are numbers.
_TEXT_COLUMNS = 2


def check_table(checks: Sequence[PolicyCheckResult], columns: int) -> Iterator[StyledLine]:
    """Yield a row for each check with marks; on a narrow terminal its name has a line of its own."""
    rows = [_cells(check) for check in checks[:_CHECKS]]
    widths = [max(map(len, cells)) for cells in zip(_HEADS, *rows, strict=True)]
    narrow = sum(widths) + 2 * len(widths[1:]) > columns
    if narrow:
        widths[0] = len(_HEADS[0])
    yield StyledLine(tuple(StyledText(text, "dim") for text in _spread(_HEADS, widths)))
    for check, cells in zip(checks, rows, strict=False):
        styles = ("", check.mark.kind.style, *("dim" if cell == "-" else "" for cell in cells[2:]))
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
        check.check,
        check.mark.value,
        *(str(number) if number else "-" for number in marks),
        node_hours(check.seconds) if check.marked else "-",
        *(str(number) if number else "-" for number in numbers),
    )


def table_legend(policy: Policy, checks: Sequence[PolicyCheckResult]) -> Iterator[Field]:
    """Yield the meaning of the columns, with the share of all marks."""
    soak, forget = format_duration(policy.soak.first), format_duration(policy.soak.forget)
    marked = sum(check.marked for check in checks)
    shares = (
        ("brief", f"resolved by itself within {soak} of the mark", sum(check.brief for check in checks)),
        ("again", f"the fault returned within {forget}", sum(check.recurred for check in checks)),
        ("worse", f"became fatal, or fatal within {forget}", sum(check.escalated for check in checks)),
    )
    for name, text, count in shares:
        if count:
            low, high = wilson(count, marked)
            interval = f"{count / marked:.0%} of all marks, {low:.0%} to {high:.0%} at 95%"
            yield Field(name, f"{text}: {interval}", "dim")
    entries = (
        ("unset", "withheld, or a dry run", any(check.withheld + check.dry_run for check in checks)),
        ("spared", "of these, brief and not again", any(check.spared for check in checks)),
        ("missed", "of these, again or worse", any(check.missed for check in checks)),
    )
    for name, text, is_shown in entries:
        if is_shown:
            yield Field(name, text, "dim")


def node_hours(seconds: float) -> str:
    """Return a time of nodes as text, in hours."""
    hours = seconds / 3600.0
    return f"{hours:.1f}" if hours < 100 else f"{hours:.0f}"
