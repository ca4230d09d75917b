"""The view of nodeguard backtest. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from nodeguard.backtest.backtest import BacktestResult
from nodeguard.backtest.drain_tracker import ReplayedDrain
from nodeguard.backtest.finding_episodes import EpisodeEnd
from nodeguard.backtest.mark_results import MarkResult, PolicyCheckResult
from nodeguard.backtest.mark_tracker import MarkEnd
from nodeguard.backtest.policy_difference import OnlyUnderOne, PolicyDifference, compare_policies
from nodeguard.backtest.policy_result import DomainResult, PolicyResult
from nodeguard.cli.render.terminal import Layout, StyledLine, StyledText, format_time, view_lines
from nodeguard.fleet_api.text.phrases import STYLES
from nodeguard.fleet_api.text.wording import count_noun, target_text
from nodeguard.fleet_api.view import Field, Heading, Note, Section, View, badge_heading
from nodeguard.judge.formatting import format_duration
from nodeguard.model.incident import IncidentState
from nodeguard.model.policy import Policy
from nodeguard.simulate.figures import wilson

# The longest mark is `quarantine`.
_LAYOUT = Layout(badge=10)

# Marks (and degraded domains) and reasons in a view without --all.
_MARKS = 10
_REASONS = 6


def backtest_lines(
    files: Sequence[str],
    policies: Sequence[Policy],
    result: BacktestResult,
    columns: int,
    *,
    everything: bool,
) -> list[StyledLine]:
    """Return the lines of the view. columns: of the terminal. everything: all marks, not only the latest."""
    lines = _lines([Section(_headline(files, result), tuple(_time_range(result)))])
    for file, policy, account in zip(files, policies, result.results, strict=True):
        sections = [_account(file, account)]
        if len(result.results) == 1:
            sections += _domains(account.domains, everything=everything)
        lines += [StyledLine(), *_lines(sections), *_checks(policy, account, columns)]
    if len(result.results) == 2:
        changes = compare_policies(*result.results)
        sections = list(_difference(files, result.results, changes, everything=everything))
    else:
        sections = list(_marks(result.results[0].marks, everything=everything))
    return [*lines, StyledLine(), *_lines(sections)] if sections else lines


def _lines(sections: Iterable[Section]) -> list[StyledLine]:
    return view_lines(View(tuple(sections)), _LAYOUT)


def _headline(files: Sequence[str], result: BacktestResult) -> Heading:
    period = format_duration(max(1.0, result.until - result.since))
    texts = [
        f"{file} marks {account.nodes}{_in_domains(account)}"
        for file, account in zip(files, result.results, strict=True)
    ]
    return badge_heading(
        "backtest", "strong", f"{count_noun(result.nodes, 'node')} in {period}: {'; '.join(texts)}."
    )


def _in_domains(account: PolicyResult) -> str:
    return f", and {account.domain_nodes} in degraded domains" if account.domain_nodes else ""


def _time_range(result: BacktestResult) -> Iterator[Field]:
    yield Field("time", f"{format_time(result.since)} to {format_time(result.until)}")
    yield Field(
        "reports", f"{count_noun(result.recent_reports, 'transition')} of {count_noun(result.nodes, 'node')}"
    )


def _marked(account: PolicyResult) -> list[MarkResult]:
    return [entry for entry in account.marks if entry.state == IncidentState.MARKED]


def _account(file: str, account: PolicyResult) -> Section:
    return Section(badge_heading("policy", "strong", file), tuple(_account_fields(account)))


def _account_fields(account: PolicyResult) -> Iterator[Field]:
    marked = _marked(account)
    first = f", first at {format_time(account.max_marked_at)}" if account.max_marked_at else ""
    nodes = count_noun(account.nodes, "node")
    text = f"{count_noun(len(marked), 'mark')} of {nodes}, {node_hours(account.seconds)} node-hours"
    nothing = "no single node" if account.domain_nodes else "nothing"
    yield Field(
        "marked",
        f"{text}; {count_noun(account.max_marked, 'node')} at one time{first}" if marked else nothing,
    )
    yield from _degraded(account)
    yield from _drains(account.drains)
    withheld = sum(item.state == IncidentState.WITHHELD for item in account.marks)
    if withheld:
        rest = len(account.reasons) - _REASONS
        reasons = "; ".join(f"{item.reason} ({item.marks})" for item in account.reasons[:_REASONS])
        more = f"; and {rest} more reasons" if rest > 0 else ""
        yield Field("withheld", f"{count_noun(withheld, 'mark')}: {reasons}{more}")
    dry_run = [item for item in account.marks if item.state == IncidentState.DRY_RUN]
    if dry_run:
        over = sum(bool(item.reasons) for item in dry_run)
        blocked = f", {over} of which something would withhold" if over else ""
        yield Field("dry run", f"{count_noun(len(dry_run), 'mark')} of checks that are not enforced{blocked}")
    settled = sum(item.ended_in_grace for item in account.checks)
    if settled:
        yield Field("settled", f"{count_noun(settled, 'finding')} over within their grace period")


def _checks(policy: Policy, account: PolicyResult, columns: int) -> Iterator[StyledLine]:
    """Yield the table of checks with its legend, if any check asked for a mark."""
    checks = [check for check in account.checks if check.marked + check.withheld + check.dry_run]
    if checks:
        yield StyledLine()
        yield from check_table(checks, columns)
        yield StyledLine()
        yield from _lines([Section(None, tuple(table_legend(policy, checks)))])


def _degraded(account: PolicyResult) -> Iterator[Field]:
    """Yield the line about degraded domains, if there were any, and about the marks that they cover."""
    if not account.domains:
        return
    domains = count_noun(len(account.domains), "domain")
    text = f"{domains}; no node is marked for {'it' if len(account.domains) == 1 else 'them'}"
    if account.domain_nodes:
        nodes = count_noun(account.domain_nodes, "node")
        text = (
            f"{domains}; {nodes} marked, {node_hours(account.domain_seconds)} node-hours; "
            f"{count_noun(account.max_domain_nodes, 'node')} at one time"
        )
    yield Field("degraded", text)
    covered = sum(check.covered for check in account.checks)
    if covered:
        yield Field("covered", f"{count_noun(covered, 'mark')} of single nodes, by the mark of their domain")


# A drain without a limit waits for the end of its notice only.
_ENDED_FIRST = "the fault, or the history, ended before the notice"


def _drains(drains: Sequence[ReplayedDrain]) -> Iterator[Field]:
    """Yield the lines about the drains that would have begun, and about those that would not."""
    begun = [drain for drain in drains if drain.begun is not None]
    if begun:
        counts = Counter(drain.checks[0] for drain in begun)
        checks = ", ".join(f"{check} {count}" for check, count in counts.most_common(_REASONS))
        nodes = count_noun(len({drain.node for drain in begun}), "node")
        text = f"{count_noun(len(begun), 'drain')} of {nodes}: {checks}"
        if waited := [drain for drain in begun if drain.reason]:
            longest = max(waited, key=lambda drain: drain.waited)
            text += f"; {len(waited)} waited, up to {format_duration(longest.waited)}: {longest.reason}"
        yield Field("drained", text)
    never = Counter(drain.reason or _ENDED_FIRST for drain in drains if drain.begun is None)
    if never:
        reasons = "; ".join(f"{reason} ({count})" for reason, count in never.most_common(_REASONS))
        yield Field("waiting", f"{count_noun(never.total(), 'drain')}: {reasons}")


# State of a degraded domain, with the number of its nodes.
_DOMAIN_STATES = {
    IncidentState.MARKED: "gang work is kept off {}",
    IncidentState.WITHHELD: "withheld; gang work is not kept off {}",
    IncidentState.DRY_RUN: "dry run; gang work would be kept off {}",
}


def _domains(domains: Sequence[DomainResult], *, everything: bool) -> Iterator[Section]:
    """Yield degraded domains, latest first."""
    shown = domains[::-1] if everything else domains[::-1][:_MARKS]
    yield from map(_domain, shown)
    yield from _earlier(len(domains) - len(shown), "earlier domain")


def _earlier(count: int, noun: str) -> Iterator[Section]:
    if count:
        yield Section(None, (Note(f"and {count_noun(count, noun)}: --all lists them"),))


def _domain(domain: DomainResult) -> Section:
    title = f"{domain.domain}, {format_time(domain.start)} {_lasts(domain.start, domain.end)}"
    nodes = count_noun(domain.nodes or domain.size, "node")
    states = [_DOMAIN_STATES[domain.state].format(nodes), *domain.reasons]
    texts = (f"incident {domain.incident}", domain.evidence, "; ".join(states))
    return Section(badge_heading("degraded", STYLES[domain.state], title), tuple(map(Note, texts)), "entry")


def _marks(entries: Sequence[MarkResult], *, everything: bool) -> Iterator[Section]:
    """Yield marks, latest first."""
    marked = [entry for entry in reversed(entries) if entry.state == IncidentState.MARKED]
    shown = marked if everything else marked[:_MARKS]
    yield from map(_mark, shown)
    yield from _earlier(len(marked) - len(shown), "earlier mark")


def _mark(entry: MarkResult) -> Section:
    times = f"{format_time(entry.start)} {_lasts(entry.start, entry.end)}"
    title = f"{entry.node}, {target_text(entry.target)}: {entry.check}, {times}"
    return Section(
        badge_heading(entry.mark.value, entry.mark.kind.style, title), (Note(_next(entry)),), "entry"
    )


def _lasts(start: float, end: float | None) -> str:
    return "to the end" if end is None else f"for {format_duration(max(end - start, 1.0))}"


_OVER = {
    EpisodeEnd.RESOLVED: "resolved by itself",
    EpisodeEnd.REBOOT: "resolved by a reboot",
    EpisodeEnd.COMPONENT_REPLACED: "resolved by replaced hardware",
    EpisodeEnd.NODE_DELETED: "its node was removed",
}
_ENDS = {
    MarkEnd.PROVEN: "released after the check passed",
    MarkEnd.RETRACTED: "released, as its check was suppressed",
    MarkEnd.SUPERSEDED: "released, as the mark of its domain covers it",
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
) -> Iterator[Section]:
    first, second = files
    heading = badge_heading("difference", "strong", f"{second} against {first}")
    fields = [
        Field("both", f"{count_noun(len(changes.marks), 'mark')} under both policies"),
        Field("no more", _only_marks(changes.first, first, second)),
        Field("new", _only_marks(changes.second, second, first)),
        Field("hours", _more_hours(accounts[1].seconds - accounts[0].seconds)),
    ]
    if any(account.domains for account in accounts):
        fields += _domain_difference(files, accounts, changes)
    yield Section(heading, tuple(fields))
    for name, only in ((first, changes.first), (second, changes.second)):
        if only.domains or only.marks:
            yield Section(None, (Note(f"under {name} only:", "strong"),))
            yield from _domains(only.domains, everything=everything)
            yield from _marks(only.marks, everything=everything)


def _domain_difference(
    files: Sequence[str], accounts: Sequence[PolicyResult], changes: PolicyDifference
) -> Iterator[Field]:
    """Yield the lines about the domains of either policy, and about the nodes that carry their marks."""
    first, second = files
    yield Field(
        "domains",
        f"{changes.domains} under both policies, {len(changes.first.domains)} under {first} only, "
        f"{len(changes.second.domains)} under {second} only",
    )
    yield Field(
        "in domains",
        f"{count_noun(changes.first.domain_nodes, 'node')} marked under {first} only, "
        f"{changes.second.domain_nodes} under {second} only; "
        f"{_more_hours(accounts[1].domain_seconds - accounts[0].domain_seconds)}",
    )


def _only_marks(only: OnlyUnderOne, file: str, other: str) -> str:
    text = f"{count_noun(len(only.marks), 'mark')} under {file} only"
    return f"{text}; {only.covered} covered by the mark of a domain under {other}" if only.covered else text


def _more_hours(seconds: float) -> str:
    return f"{'+' if seconds >= 0 else '-'}{node_hours(abs(seconds))} node-hours"


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
