"""The view of nodeguard backtest. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nodeguard.backtest.backtest import BacktestResult
from nodeguard.backtest.finding_episodes import EpisodeEnd
from nodeguard.backtest.mark_results import MarkResult
from nodeguard.backtest.mark_tracker import MarkEnd
from nodeguard.backtest.policy_difference import OnlyUnderOne, PolicyDifference, compare_policies
from nodeguard.backtest.policy_result import DomainResult, PolicyResult
from nodeguard.cli.render.backtest_table import check_table, node_hours, table_legend
from nodeguard.cli.render.terminal import StyledLine, StyledText, format_time, printable
from nodeguard.fleet_api.text.phrases import (
    STYLES,
    count_noun,
    item_line,
    target_text,
    title_line,
)
from nodeguard.judge.formatting import format_duration
from nodeguard.model.incident import IncidentState
from nodeguard.model.policy import Policy

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
    lines = [_headline(files, result), *_time_range(result)]
    for file, policy, account in zip(files, policies, result.results, strict=True):
        lines += [StyledLine(), *_account(file, account)]
        if len(result.results) == 1:
            lines += _domains(account.domains, everything=everything)
        lines += _checks(policy, account, columns)
    if len(result.results) == 2:
        changes = compare_policies(*result.results)
        lines += [StyledLine(), *_difference(files, result.results, changes, everything=everything)]
    else:
        lines += _marks(result.results[0].marks, everything=everything)
    return lines


def _headline(files: Sequence[str], result: BacktestResult) -> StyledLine:
    period = format_duration(max(1.0, result.until - result.since))
    texts = [
        f"{file} marks {account.nodes}{_in_domains(account)}"
        for file, account in zip(files, result.results, strict=True)
    ]
    return title_line(
        "backtest", "strong", f"{count_noun(result.nodes, 'node')} in {period}: {'; '.join(texts)}."
    )


def _in_domains(account: PolicyResult) -> str:
    return f", and {account.domain_nodes} in degraded domains" if account.domain_nodes else ""


def _time_range(result: BacktestResult) -> Iterator[StyledLine]:
    yield item_line("time", f"{format_time(result.since)} to {format_time(result.until)}")
    yield item_line(
        "reports", f"{count_noun(result.recent_reports, 'transition')} of {count_noun(result.nodes, 'node')}"
    )


def _marked(account: PolicyResult) -> list[MarkResult]:
    return [entry for entry in account.marks if entry.state == IncidentState.MARKED]


def _account(file: str, account: PolicyResult) -> Iterator[StyledLine]:
    yield title_line("policy", "strong", file)
    marked = _marked(account)
    first = f", first at {format_time(account.max_marked_at)}" if account.max_marked_at else ""
    nodes = count_noun(account.nodes, "node")
    text = f"{count_noun(len(marked), 'mark')} of {nodes}, {node_hours(account.seconds)} node-hours"
    nothing = "no single node" if account.domain_nodes else "nothing"
    yield item_line(
        "marked",
        f"{text}; {count_noun(account.max_marked, 'node')} at one time{first}" if marked else nothing,
    )
    yield from _degraded(account)
    withheld = sum(item.state == IncidentState.WITHHELD for item in account.marks)
    if withheld:
        rest = len(account.reasons) - _REASONS
        reasons = "; ".join(f"{item.reason} ({item.marks})" for item in account.reasons[:_REASONS])
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


def _checks(policy: Policy, account: PolicyResult, columns: int) -> Iterator[StyledLine]:
    """Yield the table of checks with its legend, if any check asked for a mark."""
    checks = [check for check in account.checks if check.marked + check.withheld + check.dry_run]
    if checks:
        yield StyledLine()
        yield from check_table(checks, columns)
        yield StyledLine()
        yield from table_legend(policy, checks)


def _degraded(account: PolicyResult) -> Iterator[StyledLine]:
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
    yield item_line("degraded", text)
    covered = sum(check.covered for check in account.checks)
    if covered:
        yield item_line(
            "covered", f"{count_noun(covered, 'mark')} of single nodes, by the mark of their domain"
        )


# State of a degraded domain, with the number of its nodes.
_DOMAIN_STATES = {
    IncidentState.MARKED: "gang work is kept off {}",
    IncidentState.WITHHELD: "withheld; gang work is not kept off {}",
    IncidentState.DRY_RUN: "dry run; gang work would be kept off {}",
}


def _domains(domains: Sequence[DomainResult], *, everything: bool) -> Iterator[StyledLine]:
    """Yield degraded domains, latest first."""
    shown = domains[::-1] if everything else domains[::-1][:_MARKS]
    for domain in shown:
        yield StyledLine()
        yield from _domain(domain)
    if len(domains) > len(shown):
        yield StyledLine()
        yield StyledLine(
            text=f"and {count_noun(len(domains) - len(shown), 'earlier domain')}: --all lists them"
        )


def _domain(domain: DomainResult) -> Iterator[StyledLine]:
    head = (StyledText(f"{'DEGRADED':<10}", STYLES[domain.state]), StyledText("  "))
    times = f"{format_time(domain.start)} {_lasts(domain.start, domain.end)}"
    yield StyledLine(head, f"{printable(domain.domain)}, {times}", "strong")
    nodes = count_noun(domain.nodes or domain.size, "node")
    texts = [_DOMAIN_STATES[domain.state].format(nodes), *domain.reasons]
    for text in (f"incident {domain.incident}", printable(domain.evidence), "; ".join(texts)):
        yield StyledLine((StyledText(" " * 12),), text)


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
    mark = entry.mark.value
    lasts = _lasts(entry.start, entry.end)
    head = (StyledText(f"{mark.upper():<10}", entry.mark.kind.style), StyledText("  "))
    yield StyledLine(
        head,
        f"{entry.node}, {target_text(entry.target)}: {entry.check}, {format_time(entry.start)} {lasts}",
        "strong",
    )
    yield StyledLine((StyledText(" " * 12),), _next(entry))


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
) -> Iterator[StyledLine]:
    first, second = files
    yield title_line("difference", "strong", f"{second} against {first}")
    yield item_line("both", f"{count_noun(len(changes.marks), 'mark')} under both policies")
    yield item_line("no more", _only_marks(changes.first, first, second))
    yield item_line("new", _only_marks(changes.second, second, first))
    yield item_line("hours", _more_hours(accounts[1].seconds - accounts[0].seconds))
    if any(account.domains for account in accounts):
        yield from _domain_difference(files, accounts, changes)
    for name, only in ((first, changes.first), (second, changes.second)):
        if only.domains or only.marks:
            yield StyledLine()
            yield StyledLine(text=f"under {name} only:", style="strong")
            yield from _domains(only.domains, everything=everything)
            yield from _marks(only.marks, everything=everything)


def _domain_difference(
    files: Sequence[str], accounts: Sequence[PolicyResult], changes: PolicyDifference
) -> Iterator[StyledLine]:
    """Yield the lines about the domains of either policy, and about the nodes that carry their marks."""
    first, second = files
    yield item_line(
        "domains",
        f"{changes.domains} under both policies, {len(changes.first.domains)} under {first} only, "
        f"{len(changes.second.domains)} under {second} only",
    )
    yield item_line(
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
