from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

from msgspec.structs import replace

from nodeguard.aggregator.pages.changes import PERIOD, changes_section
from nodeguard.fleet_api.schema.history import HistoryChange, HistoryEntry, HistoryView
from nodeguard.model.instant import rfc3339

NOW = 1_700_000_000.0
HOUR = 3600.0


def entry(hours: float, change: HistoryChange, text: str = "<text>", **about: Any) -> HistoryEntry:
    return HistoryEntry(rfc3339(NOW - hours * HOUR), change, text, **about)


def history(*entries: HistoryEntry, **fields: Any) -> HistoryView:
    begin = rfc3339(NOW - PERIOD)
    return replace(HistoryView(1, rfc3339(NOW), "", begin, begin, True, entries), **fields)


def section(view: HistoryView) -> ElementTree.Element:
    return ElementTree.fromstring(changes_section(view))


def words(part: ElementTree.Element | None) -> str:
    return "" if part is None else " ".join(" ".join(part.itertext()).split())


NIGHT = history(
    entry(23.9, "paused", "paused by alice"),
    entry(3.2, "opened", node="gpu-7", incident="gpu-7-a"),
    entry(3.1, "opened", node="gpu-8", incident="gpu-8-a"),
    entry(3.0, "marked", node="gpu-7"),
    entry(1.0, "opened", domain="rack/r1", incident="rack-r1"),
    entry(0.5, "hold", node="gpu-9"),
    entry(0.0, "resolved", node="gpu-7", incident="gpu-7-a"),
)


def test_the_numbers_of_the_changes_are_shown_and_the_others_are_folded() -> None:
    [folded] = section(NIGHT).findall("details")
    assert folded.get("open") is None
    assert words(folded.find("summary")) == (
        "Past 24 hours : 3 new faults, 1 mark set, 1 fault over, 1 pause, 1 other change"
    )


def test_the_latest_changes_come_first_with_a_link_to_what_changed() -> None:
    table = section(NIGHT).findall(".//tbody/tr")
    assert [words(row) for row in table[:3]] == [
        "22:13 UTC resolved gpu-7 <text>",
        "21:43 UTC hold gpu-9 <text>",
        "21:13 UTC opened rack/r1 <text>",
    ]
    assert words(table[-1]) == "2023-11-13 22:19 UTC paused <text>".replace("<text>", "paused by alice")
    paths = [link.get("href") for link in section(NIGHT).findall(".//tbody//a")]
    assert paths == [
        "/nodes/gpu-7", "/nodes/gpu-9", "/incidents/rack-r1", "/nodes/gpu-7", "/incidents/gpu-8-a",
        "/incidents/gpu-7-a",
    ]  # fmt: skip


def test_changes_of_one_kind_in_half_an_hour_are_one_bar() -> None:
    labels = [words(label) for label in section(NIGHT).findall(".//li")]
    assert labels == ["faults", "marks", "ends", "others"]
    bars = [bar for bar in section(NIGHT).iter("rect") if bar.get("class") != "day"]
    assert [(bar.get("class"), bar.get("y"), bar.get("x")) for bar in bars] == [
        ("operator", "50", "0.0"),
        ("fatal", "2", "597.9"),
        ("suspect", "18", "612.5"),
        ("fatal", "2", "670.8"),
        ("operator", "50", "685.4"),
        ("ok", "34", "685.4"),
    ]
    assert words(bars[1]) == "2023-11-14 19:01:20 UTC: <text> and 1 more"


def test_more_changes_are_counted_and_the_command_that_lists_them_is_named() -> None:
    many = history(*(entry(1.0, "marked", node="gpu-7") for _ in range(40)), is_complete=False, name="gpu-7")
    assert len(section(many).findall(".//tbody/tr")) == 30
    assert words(section(many).find(".//summary")) == "Past 24 hours : the latest: 40 marks set"
    assert (
        words(section(many).findall("details/p")[-1]) == "and 10 or more older ones: nodeguard history gpu-7"
    )


def test_without_changes_or_without_a_history_the_reason_is_shown() -> None:
    assert words(section(history())) == "Past 24 hours : no change."
    young = history(recorded_since=rfc3339(NOW - HOUR))
    assert words(section(young)) == "Past 24 hours : no change; recorded since 2023-11-14 21:13:20 UTC."
    assert "not available: no &lt;history&gt;." in changes_section(None, "no <history>")


def test_a_node_that_was_deleted_has_no_page() -> None:
    part = section(history(entry(1.0, "deleted", node="gpu-7")))
    assert "gpu-7" in words(part.find(".//tbody/tr"))
    assert part.findall(".//tbody//a") == []
