"""The view of nodeguard report. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nodeguard.backtest.availability import AvailabilityReport, Figures, GroupFigures
from nodeguard.cli.render.terminal import StyledLine, StyledText, view_lines
from nodeguard.fleet_api.text.wording import api_time, count_noun
from nodeguard.fleet_api.view import Field, Section, View, badge_heading
from nodeguard.judge.formatting import format_duration
from nodeguard.model.printable import printable

# Gaps that the view names; -o json has all.
_GAPS = 5

# Characters of a name in the table: longer than the parts of NVIDIA and InfiniBand with a host name.
_LONGEST_NAME = 60

_HEADER = ("FAULTS", "LAST", "BETWEEN", "REPAIR", "90%", "RELEASE", "OUT", "NO-GANG")
_FALSE_ALARM_HEADER = ("FALSE-ALARMS", "RATE", "LOW", "HIGH")
_UNKNOWN = {"check": "(none)", "domain": "(no domain)", "part": "(unknown)", "action": "(unknown)"}


def report_lines(report: AvailabilityReport) -> list[StyledLine]:
    """Return the lines of the view."""
    total = report.total
    false_alarms = f" and {count_noun(total.false_alarms, 'false alarm')}" if total.false_alarms else ""
    text = f"{count_noun(total.faults, 'fault')}{false_alarms} in {_days(report.node_days)} node-days."
    section = Section(badge_heading("availability", "strong", text), tuple(_fields(report)))
    lines = view_lines(View((section,)))
    if not report.groups:
        return lines
    rows: list[tuple[str, ...]] = [(report.by.upper(), *_HEADER)]
    rows += [(_group_name(report, group), *_row(group.figures)) for group in report.groups]
    rows.append(("total", *_row(total)))
    return [
        *lines,
        StyledLine(),
        *_table(rows),
        StyledLine(),
        *view_lines(_legend()),
        *(_false_alarms(report) if total.false_alarms else ()),
    ]


def _false_alarms(report: AvailabilityReport) -> Iterator[StyledLine]:
    """Yield the table of false alarms: only the groups that have some."""
    rows: list[tuple[str, ...]] = [(report.by.upper(), *_FALSE_ALARM_HEADER)]
    with_some = [group for group in report.groups if group.figures.false_alarms]
    with_some.sort(key=lambda group: (-group.figures.false_alarms, group.name))
    rows += [(_group_name(report, group), *_false_alarm_row(group.figures)) for group in with_some]
    rows.append(("total", *_false_alarm_row(report.total)))
    yield StyledLine()
    yield from _table(rows)
    yield StyledLine()
    about = "false alarms, as operators recorded them, per 1,000 node-days; low, high: its interval at 95%"
    yield from view_lines(View((Section(None, (Field("rate", about),)),)))


def _false_alarm_row(figures: Figures) -> tuple[str, ...]:
    rates = figures.false_alarm_rate, figures.false_alarm_rate_low, figures.false_alarm_rate_high
    return (str(figures.false_alarms), *map(_days, rates))


def _group_name(report: AvailabilityReport, group: GroupFigures) -> str:
    return printable(group.name) or _UNKNOWN[report.by]


def _fields(report: AvailabilityReport) -> Iterator[Field]:
    total = report.total
    yield Field("time", f"{api_time(report.since)} to {api_time(report.until)}")
    if total.node_days_between_faults is None:
        reason = "fewer than 3 faults" if report.node_days else "no node was observed"
        between = f"no figure: {reason}"
    else:
        low, high = total.node_days_low or 0.0, total.node_days_high or 0.0
        between = f"{_days(total.node_days_between_faults)} node-days, {_days(low)} to {_days(high)} at 95%"
    yield Field("between", between)
    still = f"; {total.ongoing} ongoing at the end" if total.ongoing else ""
    yield Field("repair", _spread(total.repaired, total.repair_seconds_p50, total.repair_seconds_p90) + still)
    yield Field("release", _spread(total.released, total.release_seconds_p50, total.release_seconds_p90))
    yield Field("GPU-hours", f"{report.gpu_hours:.1f}; {_hours(report)}")
    for gap in report.gaps[:_GAPS]:
        text = f"{api_time(gap.since)}, {format_duration(gap.seconds)}: the aggregator recorded nothing"
        yield Field("gap", text, "warning")
    if len(report.gaps) > _GAPS:
        yield Field("", f"and {len(report.gaps) - _GAPS} more gaps; -o json has all", "warning")
    if report.injected_faults:
        yield Field("injected", f"{count_noun(report.injected_faults, 'fault')} of rehearsals left out")


def _hours(report: AvailabilityReport) -> str:
    total = report.total
    share = f" ({total.gpu_hours_out / report.gpu_hours:.2%})" if report.gpu_hours else ""
    return f"{total.gpu_hours_out:.1f} out{share}; {total.gpu_hours_without_gangs:.1f} without gang work"


def _spread(count: int, median: float | None, high: float | None) -> str:
    if median is None:
        return "none in this time"
    tail = f"90% within {format_duration(high)}" if high is not None else "no 90th percentile: fewer than 10"
    return f"{count} in this time, median {format_duration(median)}, {tail}"


def _row(figures: Figures) -> tuple[str, ...]:
    return (
        str(figures.faults),
        str(figures.ongoing or "-"),
        _days(figures.node_days_between_faults),
        _duration(figures.repair_seconds_p50),
        _duration(figures.repair_seconds_p90),
        _duration(figures.release_seconds_p50),
        f"{figures.gpu_hours_out:.1f}",
        f"{figures.gpu_hours_without_gangs:.1f}",
    )


def _days(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}" if value < 100 else f"{value:.0f}"


def _duration(value: float | None) -> str:
    return "-" if value is None else format_duration(value)


def _table(rows: Sequence[Sequence[str]]) -> Iterator[StyledLine]:
    """Yield the rows of a table: a name and its figures."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    widths[0] = min(widths[0], _LONGEST_NAME)
    for number, (name, *figures) in enumerate(rows):
        head = name if len(name) <= widths[0] else f"{name[: widths[0] - 1]}…"
        cells = (f"{cell:>{width}}" for cell, width in zip(figures, widths[1:], strict=True))
        style = "strong" if number == 0 else ""
        yield StyledLine((StyledText("  ".join((f"{head:<{widths[0]}}", *cells)), style),))


def _legend() -> View:
    fields = (
        Field("last", "faults that last until the end of the time"),
        Field("between", "mean node-days between faults; - for fewer than 3 faults"),
        Field("repair", "median of the time from the begin to the end of a fault, and its 90th percentile"),
        Field("release", "median of the time from a mark to its release"),
        Field("out", "GPU-hours kept from all new work; no-gang: only from work on several nodes"),
    )
    return View((Section(None, fields),))
