"""The page of nodeguard backtest. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nodeguard.backtest.account import Account, Entry, OfCheck
from nodeguard.backtest.backtest import Difference, Tested, difference
from nodeguard.backtest.marks import End
from nodeguard.backtest.spells import Over
from nodeguard.cli.moments import spoken
from nodeguard.cli.render.fleet_words import MARK_STYLES, item, many, title, where
from nodeguard.cli.render.page import Line, Words, plain
from nodeguard.judge.words import span
from nodeguard.model.incident import State
from nodeguard.model.policy import Policy

# Marks, reasons and checks that are told where not all are wanted.
_MARKS = 10
_REASONS = 6
_CHECKS = 20


def backtest_page(
    files: Sequence[str], policies: Sequence[Policy], found: Tested, columns: int, *, everything: bool
) -> list[Line]:
    """The lines of the page, of so many columns. everything: each mark, not the latest alone."""
    lines = [_headline(files, found), *_told(found)]
    for file, policy, one in zip(files, policies, found.accounts, strict=True):
        lines += [Line(), *_account(file, policy, one, columns)]
    if len(found.accounts) == 2:
        differs = difference(*found.accounts)
        lines += [Line(), *_difference(files, found.accounts, differs, everything=everything)]
    else:
        lines += _marks(found.accounts[0].entries, everything=everything)
    return lines


def _headline(files: Sequence[str], found: Tested) -> Line:
    long = span(max(1.0, found.until - found.since))
    said = [f"{file} marks {one.nodes}" for file, one in zip(files, found.accounts, strict=True)]
    return title("backtest", "strong", f"{many(found.nodes, 'node')} in {long}: {'; '.join(said)}.")


def _told(found: Tested) -> Iterator[Line]:
    yield item("time", f"{spoken(found.since)} to {spoken(found.until)}")
    yield item("told", f"{many(found.recent, 'transition')} of {many(found.nodes, 'node')}")


def _marked(one: Account) -> list[Entry]:
    return [each for each in one.entries if each.state == State.MARKED]


def _account(file: str, policy: Policy, one: Account, columns: int) -> Iterator[Line]:
    yield title("policy", "strong", file)
    marked = _marked(one)
    at = f", first at {spoken(one.at)}" if one.most else ""
    said = f"{many(len(marked), 'mark')} of {many(one.nodes, 'node')}, {_hours(one.seconds)} node-hours"
    yield item("marked", f"{said}; {many(one.most, 'node')} at a time at most{at}" if marked else "nothing")
    withheld = sum(each.state == State.WITHHELD for each in one.entries)
    if withheld:
        rest = len(one.reasons) - _REASONS
        whys = "; ".join(f"{why} ({number})" for why, number in one.reasons[:_REASONS])
        more = f"; and {rest} more reasons" if rest > 0 else ""
        yield item("withheld", f"{many(withheld, 'mark')}: {whys}{more}")
    dry_run = [each for each in one.entries if each.state == State.DRY_RUN]
    if dry_run:
        over = sum(bool(each.whys) for each in dry_run)
        blocked = f", {over} of which something would withhold" if over else ""
        yield item("dry run", f"{many(len(dry_run), 'mark')} of checks that are not enforced{blocked}")
    settled = sum(each.settled for each in one.checks)
    if settled:
        yield item("settled", f"{many(settled, 'finding')} over within their grace period")
    if one.checks:
        yield Line()
        yield from _table(one.checks, columns)
        yield Line()
        yield from _legend(policy, one.checks)


_HEADS = ("CHECK", "MARK", "MARKS", "NODES", "HOURS", "BRIEF", "AGAIN", "WORSE", "UNSET", "SPARED", "MISSED")

# Columns of words; the others are numbers.
_WORDS = 2


def _table(checks: Sequence[OfCheck], columns: int) -> Iterator[Line]:
    """What each check came to; on a narrow page its name has a line of its own."""
    rows = [_cells(one) for one in checks[:_CHECKS]]
    wide = [max(map(len, cells)) for cells in zip(_HEADS, *rows, strict=True)]
    narrow = sum(wide) + 2 * len(wide[1:]) > columns
    if narrow:
        wide[0] = len(_HEADS[0])
    yield Line(tuple(Words(text, "dim") for text in _spread(_HEADS, wide)))
    for one, cells in zip(checks, rows, strict=False):
        styles = ("", MARK_STYLES[one.mark], *("dim" if cell == "-" else "" for cell in cells[2:]))
        if narrow:
            yield Line((Words(cells[0], "strong"),))
        texts = _spread(("", *cells[1:]) if narrow else cells, wide)
        yield Line(tuple(Words(text, style) for text, style in zip(texts, styles, strict=True)))
    if len(checks) > _CHECKS:
        yield Line(text=f"and {len(checks) - _CHECKS} more checks: --format json has all", style="dim")


def _spread(cells: Sequence[str], wide: Sequence[int]) -> list[str]:
    """Cells under one another: words to the left, numbers to the right."""
    return [
        f"{text:<{width}}  " if place < _WORDS else f"{text:>{width}}  "
        for place, (text, width) in enumerate(zip(cells, wide, strict=True))
    ]


def _cells(one: OfCheck) -> tuple[str, ...]:
    numbers = (one.brief, one.again, one.worse, one.withheld + one.observed, one.spared, one.missed)
    marks = (one.marked, one.nodes)
    return (
        plain(one.check),
        one.mark.value,
        *(str(number) if number else "-" for number in marks),
        _hours(one.seconds) if one.marked else "-",
        *(str(number) if number else "-" for number in numbers),
    )


def _legend(policy: Policy, checks: Sequence[OfCheck]) -> Iterator[Line]:
    soak, forget = span(policy.soak.first), span(policy.soak.forget)
    told = (
        ("brief", f"over by itself within {soak} of the mark", any(one.brief for one in checks)),
        ("again", f"found again within {forget}", any(one.again for one in checks)),
        ("worse", f"fatal then, or within {forget}", any(one.worse for one in checks)),
        ("unset", "withheld, or a dry run", any(one.withheld + one.observed for one in checks)),
        ("spared", "of these, brief and not again", any(one.spared for one in checks)),
        ("missed", "of these, again or worse", any(one.missed for one in checks)),
    )
    for name, text, is_there in told:
        if is_there:
            yield item(name, text, "dim")


def _marks(entries: Sequence[Entry], *, everything: bool) -> Iterator[Line]:
    """Marks, the latest first."""
    marked = [one for one in reversed(entries) if one.state == State.MARKED]
    shown = marked if everything else marked[:_MARKS]
    for one in shown:
        yield Line()
        yield from _mark(one)
    if len(marked) > len(shown):
        yield Line()
        yield Line(text=f"and {many(len(marked) - len(shown), 'earlier mark')}: --all tells of each")


def _mark(one: Entry) -> Iterator[Line]:
    asked = one.asked
    word = asked.mark.value
    lasts = f"for {span(max(one.ended - one.began, 1.0))}" if one.ended is not None else "to the end"
    head = (Words(f"{word.upper():<10}", MARK_STYLES[asked.mark]), Words("  "))
    yield Line(
        head, f"{asked.node}, {where(asked.target)}: {asked.check}, {spoken(one.began)} {lasts}", "strong"
    )
    yield Line((Words(" " * 12),), _next(one))


_OVER = {
    Over.ITSELF: "over by itself",
    Over.REBOOT: "over with a reboot",
    Over.PART: "over with another part in its place",
    Over.LEFT: "its node left",
}
_ENDS = {
    End.PROVEN: "given back for proof",
    End.RETRACTED: "given back, as its check is held",
    End.REMOVED: "taken away by a person",
    End.CHANGED: "another mark took its place",
    End.LEFT: "gone with its node",
}


def _next(one: Entry) -> str:
    """What happened next."""
    after = one.next
    said = [f"{_OVER[after.over]} after {span(after.lasted or 0.0)}" if after.over in _OVER else "not over"]
    said += ["found again"] if after.again else []
    said += ["found to be fatal"] if after.worse else []
    said += [_ENDS[one.end]] if one.end in _ENDS and one.end != End.LEFT else []
    said += (
        ["not given back: no proof of it, or its soak goes on"] if one.ended is None and after.lasted else []
    )
    return "; ".join(said)


def _difference(
    files: Sequence[str], accounts: Sequence[Account], found: Difference, *, everything: bool
) -> Iterator[Line]:
    first, second = files
    hours = accounts[1].seconds - accounts[0].seconds
    yield title("difference", "strong", f"{second} against {first}")
    yield item("both", f"{many(len(found.both), 'mark')} under both policies")
    yield item("no more", f"{many(len(found.first), 'mark')} under {first} alone")
    yield item("new", f"{many(len(found.second), 'mark')} under {second} alone")
    yield item("hours", f"{'+' if hours >= 0 else '-'}{_hours(abs(hours))} node-hours")
    for name, entries in ((first, found.first), (second, found.second)):
        if entries:
            yield Line()
            yield Line(text=f"under {name} alone:", style="strong")
            yield from _marks(entries, everything=everything)


def _hours(seconds: float) -> str:
    hours = seconds / 3600.0
    return f"{hours:.1f}" if hours < 100 else f"{hours:.0f}"
