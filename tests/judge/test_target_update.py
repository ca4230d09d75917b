from __future__ import annotations

from typing import Any

import pytest

from nodeguard.judge.counters import increase_within
from nodeguard.judge.state import SourceSnapshot, TargetState
from nodeguard.judge.target_update import drop_source, mark_unreached, merge_sources, update_target
from nodeguard.model.observation import Component, Event, Observation

SPANS = {"n": 600.0}


def read(now: float, state: TargetState | None = None, *, n: int | None = None, **fields: Any) -> TargetState:
    signals = {} if n is None else {"n": n}
    words: dict[str, Any] = {"signals": signals, **fields}
    return update_target(
        state, [Observation("memory", "node", **words)], SPANS, {"memory": now - 10}, now, {}
    )


def test_target_state_starts_with_its_first_reading() -> None:
    state = read(10, n=5)
    assert state.first_seen == 10
    assert state.sources == {"memory": SourceSnapshot({"n": 5})}
    assert read(20, state, n=5).first_seen == 10


def test_unchanged_target_is_the_same_object() -> None:
    state = read(10, n=5, component=Component("one"), unreadable={"b": "refused"}, epoch="1")
    assert read(20, state, n=5, component=Component("one"), unreadable={"b": "refused"}, epoch="1") is state
    assert read(20, state, n=5, unreadable={"b": "late"}, epoch="1") is not state
    assert read(20, state, n=5, unreadable={"b": "refused"}, epoch="2") is not state


def test_an_older_sign_does_not_replace_a_later_one() -> None:
    logged = read(400, events=(Event("gpu.recovery_none", 390),))
    state = read(410, logged, events=(Event("gpu.recovery_none", 110), Event("gpu.reset", 405)))
    assert state.signs == {"recovery-none": 390, "reset": 405}


def test_long_gap_resets_every_counter() -> None:
    state = read(10, n=5)
    late = update_target(
        state, [Observation("memory", "node", signals={"n": 5})], SPANS, {"memory": 10}, 1300, {}
    )
    assert late.counters["n"].since == 1300


def test_new_component_resets_the_state_of_the_old_one() -> None:
    broken = Event("a.happened", 5)
    old = read(10, n=5, component=Component("one"), events=(broken,))
    new = read(20, old, n=9, component=Component("two"))
    assert (new.first_seen, new.signs, increase_within(new.counters["n"], 600, 20)) == (
        20,
        {"component-replaced": 20},
        0,
    )
    assert list(new.events) == ["memory a.happened"]


@pytest.mark.parametrize("part", [None, Component(""), Component("one", model="better known")])
def test_unknown_or_equal_component_does_not_reset_the_state(part: Component | None) -> None:
    state = read(20, read(10, n=5, component=Component("one")), n=9, component=part)
    assert (
        state.first_seen,
        state.component and state.component.id,
        increase_within(state.counters["n"], 600, 20),
    ) == (10, "one", 4)


def test_new_epoch_resets_every_counter() -> None:
    state = read(20, read(10, n=5, epoch="driver 1"), n=9, epoch="driver 2")
    assert increase_within(state.counters["n"], 600, 20) == 0


@pytest.mark.parametrize("status", ["failed", "hung"])
def test_signal_that_can_no_longer_be_read_is_unread(status: str) -> None:
    state = read(20, read(10, n=5), status=status, detail="refused")
    assert merge_sources(state.sources) == ({}, {"n": "refused"})
    again = read(30, state, status=status, detail="still refused")
    assert merge_sources(again.sources) == ({}, {"n": "still refused"})
    assert merge_sources(read(40, again, n=5).sources) == ({"n": 5}, {})


def test_signals_of_a_failed_reading_count() -> None:
    state = read(20, read(10, n=5), n=6, status="failed", detail="refused")
    assert merge_sources(state.sources) == ({"n": 6}, {})


def test_counter_bridges_a_short_gap_but_not_a_long_one() -> None:
    """A source that fails reads no counters, however often it is tried."""
    state = read(0, n=5)
    for now in range(10, 100, 10):
        state = read(now, state, status="failed", detail="refused")
    assert increase_within(read(100, state, n=9).counters["n"], 600, 100) == 4
    for now in range(100, 1300, 10):
        state = read(now, state, status="failed", detail="refused")
    assert increase_within(read(1300, state, n=9).counters["n"], 600, 1300) == 0


def test_a_failed_reading_belongs_to_no_epoch() -> None:
    state = read(10, n=5, epoch="driver 1")
    state = read(20, state, status="failed", detail="refused")
    assert increase_within(read(30, state, n=9, epoch="driver 1").counters["n"], 600, 30) == 4
    assert increase_within(read(30, state, n=9, epoch="driver 2").counters["n"], 600, 30) == 0


def test_signals_of_a_failed_reading_belong_to_the_previous_epoch() -> None:
    state = read(20, read(10, n=5, epoch="mig"), n=7, status="hung", detail="late")
    assert increase_within(read(30, state, n=9, epoch="mig").counters["n"], 600, 30) == 4


def test_target_that_an_interrupted_round_did_not_reach_is_unread() -> None:
    state = mark_unreached(read(10, n=5), "memory", 10, "no answer")
    assert merge_sources(state.sources) == ({}, {"n": "no answer"})


def test_empty_round_of_a_source_removes_its_earlier_signals() -> None:
    state = read(10, n=5)
    absent = Observation("memory", "node", "absent", detail="not there")
    assert merge_sources(update_target(state, [absent], SPANS, {"memory": 10}, 20, {}).sources) == ({}, {})


def test_target_removed_by_one_source_keeps_the_signals_of_other_sources() -> None:
    state = update_target(read(10, n=5), [Observation("pci", "node", signals={"m": 1})], SPANS, {}, 10, {})
    assert merge_sources(drop_source(state, "memory").sources) == ({"m": 1}, {})


def test_signals_of_all_sources_are_merged() -> None:
    memories = {
        "one": SourceSnapshot({"a": 1}, {"b": "refused"}),
        "two": SourceSnapshot({"c": 2}, {"d": "late"}),
    }
    assert merge_sources(memories) == ({"a": 1, "c": 2}, {"b": "refused", "d": "late"})


def test_signal_refused_by_one_source_may_be_read_by_another() -> None:
    memories = {"one": SourceSnapshot({}, {"a": "refused"}), "two": SourceSnapshot({"a": 1})}
    assert merge_sources(memories)[0] == {"a": 1}
