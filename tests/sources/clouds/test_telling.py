from __future__ import annotations

import pytest

from nodeguard.sources.clouds.cloud import PlannedEvent, plan_signals

NOW = 1_800_000_000.0  # 2027-01-15 08:00:00 UTC


def reboot(**fields: object) -> PlannedEvent:
    return PlannedEvent("reboot", "a reboot", **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("planned", "when", "left"),
    [
        (reboot(starts=NOW + 90), "not before 2027-01-15 08:01:30 UTC", 90.0),
        (reboot(starts=NOW - 60), "due since 2027-01-15 07:59:00 UTC", 0.0),
        (reboot(starts=NOW + 90, begun=True), "under way", 0.0),
        (reboot(notice=3600.0), "within 60 min", None),
        (reboot(), "at a moment that is not told", None),
        (reboot(odd="soon"), "at a moment told as 'soon'", None),
    ],
)
def test_when(planned: PlannedEvent, when: str, left: float | None) -> None:
    signals, unread = plan_signals((planned,), NOW)
    assert signals["maintenance.when"] == when
    assert signals.get("maintenance.starts_in") == left
    assert unread == (
        {"maintenance.starts_in": "the moment is told as 'soon'"} if planned.unparsed_start else {}
    )


def test_the_first_is_told_and_the_others_are_counted() -> None:
    begun = PlannedEvent("freeze", "one that has begun", is_started=True)
    soon, late = reboot(starts=NOW + 60), PlannedEvent("retire", "a retirement", NOW + 86_400)
    vague = PlannedEvent("terminate", "an end", notice=3600.0)
    risk = PlannedEvent("rebalance", "a risk")
    order = [begun, soon, vague, late, risk]
    for number, first in enumerate(order):
        rest = tuple(reversed(order[number:]))
        signals, _ = plan_signals(rest, NOW)
        more = f", the first of {len(rest)}" if len(rest) > 1 else ""
        assert (signals["maintenance.kind"], signals["maintenance.what"]) == (
            first.kind,
            first.description + more,
        )
        assert signals["maintenance.pending"] is True
