"""The text of nodeguard history."""

from __future__ import annotations

from nodeguard.cli.render.history import history_lines
from nodeguard.fleet_api.schema.history import HistoryEntry, HistoryView
from tests.cli.fleet_output import look


def view(
    *entries: HistoryEntry, name: str = "", complete: bool = True, recorded: str = "2026-11-01T00:00:00Z"
) -> HistoryView:
    return HistoryView(1, "2026-11-21T09:12:33Z", name, "2026-11-20T09:12:33Z", recorded, complete, entries)


def texts(shown: HistoryView) -> list[str]:
    return look(history_lines(shown), 400).splitlines()


def test_each_change_has_its_time_what_happened_and_where() -> None:
    entries = (
        HistoryEntry(
            "2026-11-20T10:00:00Z", "opened", "fatal: gpu-lost on GPU 0: lost", "gpu-7", "gpu-7-lost"
        ),
        HistoryEntry(
            "2026-11-20T10:01:00Z", "changed", "port-down is fatal now", domain="rack/r0", incident="r0"
        ),
        HistoryEntry(
            "2026-11-20T11:00:00Z", "paused", "paused by alice at 2026-11-20T11:00:00Z: a bad driver"
        ),
    )
    assert texts(view(*entries)) == [
        "2026-11-20 10:00:00 UTC  opened       gpu-7: fatal: gpu-lost on GPU 0: lost",
        "2026-11-20 10:01:00 UTC  changed      rack/r0: port-down is fatal now",
        "2026-11-20 11:00:00 UTC  paused       paused by alice at 2026-11-20T11:00:00Z: a bad driver",
    ]


def test_another_policy_has_a_line_for_each_value() -> None:
    details = ("budget.fleet: 0.05 → 0.1", "modeRules: added {check: gpu-lost, mode: enforce}")
    entry = HistoryEntry("2026-11-20T10:00:00Z", "policy", "another policy is in use", details=details)
    assert look(history_lines(view(entry)), 80).splitlines() == [
        "2026-11-20 10:00:00 UTC  policy       another policy is in use",
        "                                        budget.fleet: 0.05 → 0.1",
        "                                        modeRules: added {check: gpu-lost, mode:",
        "                                        enforce}",
    ]


def test_missing_changes_are_reported_first() -> None:
    entry = HistoryEntry("2026-11-20T10:00:00Z", "hold", "hold: x", "gpu-7")
    assert texts(view(entry, complete=False, recorded="2026-11-21T09:00:00Z"))[:2] == [
        "this aggregator has recorded changes since 2026-11-21 09:00:00 UTC",
        "older changes are left out: name a node, or set a shorter --since",
    ]
    assert texts(view(name="gpu-7")) == ["no change of gpu-7 since 2026-11-20 09:12:33 UTC"]


def test_control_characters_of_reports_are_not_printed() -> None:
    entry = HistoryEntry("2026-11-20T10:00:00Z", "hold", "hold: \x1b[31mred\nline", "gpu-7")
    [line] = texts(view(entry))
    assert line.isprintable()
