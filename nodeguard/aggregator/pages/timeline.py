"""The findings of a node over time as HTML: a drawing and a table. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from nodeguard.aggregator.history.node_findings import FindingPeriod
from nodeguard.aggregator.pages.html import EMPTY, Html, element, join
from nodeguard.aggregator.pages.sections import badge, table
from nodeguard.fleet_api.text.wording import api_time, target_text
from nodeguard.judge.formatting import format_duration
from nodeguard.model.instant import rfc3339

# Seconds that the timeline shows, and the rows of the drawing and of the table.
TIMELINE = 7 * 86_400.0
_DAYS = 7
_ROWS = 16
_PERIODS = 100

# The drawing, in its own units: its width, the height of a row, and the narrowest visible bar.
_WIDTH, _ROW, _NARROWEST = 700.0, 16.0, 2.0


class Bar(NamedTuple):
    """A bar of a drawing. row: its number. begin, end: as shares of the time that the drawing shows. title:
    the text of a pointer on it.
    """

    row: int
    begin: float
    end: float
    style: str
    title: str


def timeline_section(periods: Sequence[FindingPeriod], now: float, problem: str = "") -> Html:
    """Return the findings of the past week. periods: latest first. now: seconds since the epoch. problem: why
    they could not be read, empty for none.
    """
    title = element("h2", "Findings of the past 7 days")
    if problem or not periods:
        text = f"Not available: {problem}." if problem else "None."
        return element("section", title, element("p", text), id="timeline")
    rows = (_row(period, now) for period in periods[:_PERIODS])
    rest = len(periods) - _PERIODS
    more = element("p", f"and {rest} older ones") if rest > 0 else EMPTY
    listed = table(("Finding", "On", "From", "To", "For"), rows)
    return element("section", title, _drawing(periods, now), listed, more, id="timeline")


def _row(period: FindingPeriod, now: float) -> tuple[str, ...]:
    end = now if period.ended is None else period.ended
    return (
        join((badge(period.health.value.upper(), period.health.value), " ", period.check)),
        target_text(period.target),
        api_time(rfc3339(period.began)),
        element("b", "now") if period.ended is None else api_time(rfc3339(period.ended)),
        format_duration(max(0.0, end - period.began)),
    )


def _drawing(periods: Sequence[FindingPeriod], now: float) -> Html:
    """Return a bar for each period, in one row for each check."""
    checks = list(dict.fromkeys(period.check for period in periods))[:_ROWS]
    begin = now - TIMELINE
    bars = [
        Bar(
            checks.index(period.check),
            (period.began - begin) / TIMELINE,
            1.0 if period.ended is None else (period.ended - begin) / TIMELINE,
            period.health.value,
            f"{period.check}: {period.message}",
        )
        for period in reversed(periods)
        if period.check in checks
    ]
    return chart(checks, bars, _DAYS, f"{_DAYS} days ago", "Findings by check; the table has the same")


def chart(labels: Sequence[str], bars: Iterable[Bar], divisions: int, start: str, about: str) -> Html:
    """Return a drawing of bars in labelled rows; the end of the time is on the right.

    divisions: of the time, by lines. start: the time on the left. about: the text alternative.
    """
    height = _ROW * len(labels)
    lines = (
        element(
            "rect", x=f"{_WIDTH * line / divisions:g}", y="0", width="1", height=f"{height:g}", class_="day"
        )
        for line in range(1, divisions)
    )
    drawing = element(
        "svg", join(lines), join(map(_bar, bars)), viewBox=f"0 0 {_WIDTH:g} {height:g}", height=f"{height:g}",
        role="img", preserveAspectRatio="none", aria_label=about,
    )  # fmt: skip
    axis = element("p", element("span", start), element("span", "now"), class_="axis")
    names = join(element("li", label) for label in labels)
    return element("div", element("ol", names), element("div", drawing, axis), class_="timeline")


def _bar(bar: Bar) -> Html:
    left, right = max(0.0, bar.begin * _WIDTH), bar.end * _WIDTH
    return element(
        "rect",
        element("title", bar.title),
        x=f"{min(left, _WIDTH - _NARROWEST):.1f}",
        y=f"{_ROW * bar.row + 2:g}",
        width=f"{max(_NARROWEST, right - left):.1f}",
        height=f"{_ROW - 4:g}",
        class_=bar.style,
    )
