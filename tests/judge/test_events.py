from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeguard.judge.events import (
    active_events,
    carry_over_events,
    cleared_events,
    clearing_sign,
    record_events,
)
from nodeguard.judge.state import RememberedEvent
from nodeguard.model.check import ClearSign, EventOccurred
from nodeguard.model.observation import Event

A = "a.happened"


def event(at: float, count: int = 1, signal: str = A, **fields: Any) -> Event:
    return Event(signal, at, f"{signal} at {at:g}", dict(fields), count)


def remembered(*events: Event) -> dict[str, RememberedEvent]:
    return record_events({}, "kmsg", events)[0]


def event_texts(
    events: dict[str, RememberedEvent],
    wanted: EventOccurred,
    *,
    clears: tuple[ClearSign, ...] = (),
    **signs: float,
) -> list[str]:
    signs_at = {name.replace("_", "-"): at for name, at in signs.items()}
    return [item.text for item in active_events(events, wanted, clears, signs_at, 1000.0)]


def test_repeated_event_is_one_occurrence() -> None:
    [item] = remembered(event(10), event(30, count=3), event(20)).values()
    assert (item.first, item.last, item.count, item.text) == (10, 30, 5, "a.happened at 30")


@pytest.mark.parametrize(
    "field", ["xid", "link", "dev", "severity", "constraint", "what", "code", "cache", "module"]
)
def test_events_with_different_key_fields_are_separate_occurrences(field: str) -> None:
    x, y = Event(A, 10, fields={field: "x"}), Event(A, 20, fields={field: "y"})
    assert len(remembered(x, y)) == 2


def test_event_with_count_zero_does_not_increase_the_count() -> None:
    [item] = remembered(event(10), event(10, count=0)).values()
    assert (item.count, item.times) == (1, (10,))


def test_order_within_a_round_does_not_matter() -> None:
    events = [event(10, dev="x"), event(30, dev="x"), event(20, dev="y"), event(25, signal="gpu.reset")]
    rounds = [record_events({}, "kmsg", order) for order in permutations(events)]
    for after, signs in rounds:
        assert signs == {"reset": 25}
        assert {
            (item.text, item.first, item.last, item.count, tuple(sorted(item.times)))
            for item in after.values()
        } == {("a.happened at 30", 10, 30, 2, (10, 30)), ("a.happened at 20", 20, 20, 1, (20,))}


@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 500), st.integers(0, 10**6)), max_size=400))
def test_flood_of_events_has_bounded_memory(flood: list[tuple[int, int, int]]) -> None:
    after = remembered(*(event(float(at), count=count, dev=str(dev)) for at, dev, count in flood))
    assert len(after) <= 64
    assert all(len(item.times) <= 64 for item in after.values())
    latest = {str(dev): at for at, dev, _ in sorted(flood)}
    assert not flood or str(max(latest.values())) in {f"{item.last:g}" for item in after.values()}


@pytest.mark.parametrize(
    ("wanted", "texts"),
    [
        (EventOccurred(A), ["a.happened at 10", "a.happened at 990"]),
        (EventOccurred(A, over=60), ["a.happened at 990"]),
        (EventOccurred(A, over=10), []),
        (EventOccurred(A, where={"dev": ("x",)}), ["a.happened at 10"]),
        (EventOccurred(A, where={"mode": ("x",)}), []),
        (EventOccurred(A, times=2), ["a.happened at 10", "a.happened at 990"]),
        (EventOccurred(A, times=3), []),
        (EventOccurred(A, times=2, apart=980), ["a.happened at 10", "a.happened at 990"]),
        (EventOccurred(A, times=2, apart=981), []),
        (EventOccurred(A, times=2, over=60), []),
        (EventOccurred("b.happened"), []),
    ],
)
def test_condition_selects_events_by_field_and_window(wanted: EventOccurred, texts: list[str]) -> None:
    assert event_texts(remembered(event(10, dev="x"), event(990, dev="y")), wanted) == texts


def test_window_counts_only_events_within_it() -> None:
    events = remembered(event(10, count=60), event(990))
    assert event_texts(events, EventOccurred(A, times=5, over=60)) == []
    assert event_texts(events, EventOccurred(A, times=5)) == ["a.happened at 990"]


def test_sign_clears_earlier_events_if_the_check_allows_it() -> None:
    events = remembered(event(10))
    assert event_texts(events, EventOccurred(A), clears=("reset",), reset=11.0) == []
    assert event_texts(events, EventOccurred(A), clears=("reset",), reset=10.0) != []
    assert event_texts(events, EventOccurred(A), clears=("reboot",), reset=11.0) != []


@pytest.mark.parametrize(
    ("reported", "at", "over"), [(True, 10, False), (True, 10.5, True), (False, 16, False), (None, 16, True)]
)
def test_recovery_action_none_clears_recoverable_errors(reported: bool | None, at: float, over: bool) -> None:
    fields: dict[str, Any] = {} if reported is None else {"recovery_reported": reported}
    [item] = remembered(event(10, **fields)).values()
    assert (clearing_sign(item, ("recovery-none",), {"recovery-none": at}) is not None) is over


def test_until_event_ends_an_event_with_the_same_fields() -> None:
    lost = [event(10, server="a"), event(20, server="b")]
    wanted = EventOccurred(A, until="back")
    assert event_texts(remembered(*lost, event(15, signal="back", server="a")), wanted) == [
        "a.happened at 20"
    ]
    assert event_texts(remembered(*lost, event(30, signal="back")), wanted) == []
    assert len(event_texts(remembered(*lost, event(5, signal="back", server="a")), wanted)) == 2
    assert len(event_texts(remembered(*lost, event(30, signal="other", server="a")), wanted)) == 2


def test_cleared_event_is_reported_for_a_day_with_its_sign() -> None:
    events = remembered(event(10))
    messages = [
        since
        for _, since in cleared_events(
            events, EventOccurred(A), ("reset", "component-replaced"), {"reset": 20.0}, 100
        )
    ]
    assert messages == ["it was reset since"]
    assert list(cleared_events(events, EventOccurred(A), ("reset",), {"reset": 20.0}, 90_000)) == []
    assert (
        list(
            cleared_events(
                events, EventOccurred(A), ("component-replaced",), {"component-replaced": 20.0}, 100
            )
        )
        == []
    )
    assert list(cleared_events(events, EventOccurred(A), ("reset",), {}, 100)) == []


@given(at=st.floats(0, 5000), ended=st.floats(0, 5000))
def test_event_that_survives_a_reboot_is_before_the_next_boot(at: float, ended: float) -> None:
    """Whether or not the source was read after the event, a reboot comes after it."""
    [item] = carry_over_events(remembered(event(at), event(at, signal="b.happened")), {A}, ended).values()
    assert item.signal == A
    assert item.first <= item.last
    assert clearing_sign(item, ("reboot",), {"reboot": 0.0})


def test_a_flood_of_one_signal_displaces_no_event_of_another() -> None:
    flood = [event(float(at), dev=f"sd{at}") for at in range(100, 300)]
    after = remembered(event(10, signal="b.happened"), *flood)
    assert len(after) == 64
    assert [item.text for item in after.values() if item.signal == "b.happened"] == ["b.happened at 10"]
