from __future__ import annotations

from typing import Any

import pytest

from nodeguard.judge.signal_conditions import increase_within
from nodeguard.judge.state import SourceSnapshot, TargetState
from nodeguard.judge.target_update import drop_source, mark_unreached, merge_sources, update_target
from nodeguard.model.observation import Component, Event, Observation

SPANS = {"n": 600.0}


def read(now: float, state: TargetState | None = None, *, n: int | None = None, **fields: Any) -> TargetState:
    signals = {} if n is None else {"n": n}
    words: dict[str, Any] = {"signals": signals, **fields}
    return update_target(state, [Observation("memory", "node", **words)], SPANS, {"memory": now - 10}, now)


def test_a_slot_begins_with_its_first_reading() -> None:
    state = read(10, n=5)
    assert state.first_seen == 10
    assert state.sources == {"memory": SourceSnapshot({"n": 5})}
    assert read(20, state, n=5).first_seen == 10


def test_a_slot_of_which_nothing_is_new_is_the_same_object() -> None:
    state = read(10, n=5, component=Component("one"), unreadable={"b": "refused"}, epoch="1")
    assert read(20, state, n=5, component=Component("one"), unreadable={"b": "refused"}, epoch="1") is state
    assert read(20, state, n=5, unreadable={"b": "late"}, epoch="1") is not state
    assert read(20, state, n=5, unreadable={"b": "refused"}, epoch="2") is not state


def test_long_gap_resets_every_counter() -> None:
    state = read(10, n=5)
    late = update_target(
        state, [Observation("memory", "node", signals={"n": 5})], SPANS, {"memory": 10}, 1300
    )
    assert late.counters["n"].since == 1300


def test_a_new_part_closes_what_was_known_of_the_old_one() -> None:
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
def test_a_part_that_is_unknown_or_the_same_closes_nothing(part: Component | None) -> None:
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
def test_what_was_read_and_cannot_be_now_is_unread(status: str) -> None:
    state = read(20, read(10, n=5), status=status, detail="refused")
    assert merge_sources(state.sources) == ({}, {"n": "refused"})
    again = read(30, state, status=status, detail="still refused")
    assert merge_sources(again.sources) == ({}, {"n": "still refused"})
    assert merge_sources(read(40, again, n=5).sources) == ({"n": 5}, {})


def test_what_a_failed_reading_still_brought_counts() -> None:
    state = read(20, read(10, n=5), n=6, status="failed", detail="refused")
    assert merge_sources(state.sources) == ({"n": 6}, {})


def test_a_counter_bridges_a_short_silence_and_no_long_one() -> None:
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


def test_what_a_failed_reading_brought_belongs_to_the_epoch_before() -> None:
    state = read(20, read(10, n=5, epoch="mig"), n=7, status="hung", detail="late")
    assert increase_within(read(30, state, n=9, epoch="mig").counters["n"], 600, 30) == 4


def test_a_slot_that_a_cut_round_did_not_reach_is_unknown() -> None:
    state = mark_unreached(read(10, n=5), "memory", 10, "no answer")
    assert merge_sources(state.sources) == ({}, {"n": "no answer"})


def test_a_source_that_finds_nothing_any_more_is_not_known_by_what_it_found() -> None:
    state = read(10, n=5)
    absent = Observation("memory", "node", "absent", detail="not there")
    assert merge_sources(update_target(state, [absent], SPANS, {"memory": 10}, 20).sources) == ({}, {})


def test_a_slot_that_a_source_no_longer_finds_keeps_what_others_read() -> None:
    state = update_target(read(10, n=5), [Observation("pci", "node", signals={"m": 1})], SPANS, {}, 10)
    assert merge_sources(drop_source(state, "memory").sources) == ({"m": 1}, {})


def test_signals_of_all_sources_stand_together() -> None:
    memories = {
        "one": SourceSnapshot({"a": 1}, {"b": "refused"}),
        "two": SourceSnapshot({"c": 2}, {"d": "late"}),
    }
    assert merge_sources(memories) == ({"a": 1, "c": 2}, {"b": "refused", "d": "late"})


def test_what_one_source_refuses_another_may_have_read() -> None:
    memories = {"one": SourceSnapshot({}, {"a": "refused"}), "two": SourceSnapshot({"a": 1})}
    assert merge_sources(memories)[0] == {"a": 1}
