from __future__ import annotations

from xml.etree import ElementTree

from nodeguard.aggregator.history.node_findings import FindingPeriod
from nodeguard.aggregator.pages.timeline import TIMELINE, timeline_section
from nodeguard.model.finding import Health

NOW = 1_700_000_000.0
DAY = 86_400.0


def period(check: str, began: float, ended: float | None = None) -> FindingPeriod:
    return FindingPeriod(check, "gpu/0000:3b:00", Health.FATAL, "it <failed>", began, ended)


def test_periods_are_bars_and_rows() -> None:
    periods = [
        period("gpu-lost", NOW - DAY),
        period("gpu-ecc", NOW - 3.5 * DAY, NOW - 2 * DAY),
        period("gpu-lost", NOW - 30 * DAY, NOW - 6 * DAY),
    ]
    section = ElementTree.fromstring(timeline_section(periods, NOW))
    bars = [bar for bar in section.iter("rect") if bar.get("class") == "fatal"]
    expected = [("0.0", "100.0", "2"), ("350.0", "150.0", "18"), ("600.0", "100.0", "2")]
    assert [(bar.get("x"), bar.get("width"), bar.get("y")) for bar in bars] == expected
    assert [bar.findtext("title") for bar in bars] == [
        f"{name}: it <failed>" for name in ("gpu-lost", "gpu-ecc", "gpu-lost")
    ]
    rows = [" ".join("".join(cell.itertext()) for cell in row) for row in section.findall(".//tbody/tr")]
    assert rows[0] == "FATAL gpu-lost GPU 0000:3b:00 2023-11-13 22:13:20 UTC now 1 d"
    assert rows[1] == "FATAL gpu-ecc GPU 0000:3b:00 2023-11-11 10:13:20 UTC 2023-11-12 22:13:20 UTC 1 d 12 h"


def test_a_short_finding_is_visible_and_inside_the_drawing() -> None:
    section = ElementTree.fromstring(timeline_section([period("gpu-lost", NOW, NOW)], NOW))
    [bar] = [bar for bar in section.iter("rect") if bar.get("class") == "fatal"]
    assert (bar.get("x"), bar.get("width")) == ("698.0", "2.0")


def test_many_findings_are_counted() -> None:
    periods = [period(f"check-{number}", NOW - number) for number in range(130)]
    section = ElementTree.fromstring(timeline_section(periods, NOW))
    assert len(section.findall(".//tbody/tr")) == 100
    assert len(section.findall(".//li")) == 16
    assert "and 30 older ones" in "".join(section.itertext())


def test_without_findings_or_history_the_page_gives_the_reason() -> None:
    assert "None." in timeline_section([], NOW)
    assert "Not available: no &lt;history&gt;." in timeline_section([], NOW, "no <history>")
    assert TIMELINE == 7 * DAY
