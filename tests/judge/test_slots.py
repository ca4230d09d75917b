from __future__ import annotations

from typing import Any

import pytest

from nodeguard.judge.counters import rise
from nodeguard.judge.slots import after, gone, merged, unreached
from nodeguard.judge.state import SlotState, SourceMemory
from nodeguard.model.observation import Event, Observation, Part

SPANS = {"n": 600.0}


def read(now: float, state: SlotState | None = None, *, n: int | None = None, **fields: Any) -> SlotState:
    signals = {} if n is None else {"n": n}
    words: dict[str, Any] = {"signals": signals, **fields}
    return after(state, [Observation("memory", "node", **words)], SPANS, {"memory": now - 10}, now)


def test_a_slot_begins_with_its_first_reading() -> None:
    state = read(10, n=5)
    assert state.first == 10
    assert state.sources == {"memory": SourceMemory({"n": 5})}
    assert read(20, state, n=5).first == 10


def test_a_slot_of_which_nothing_is_new_is_the_same_object() -> None:
    state = read(10, n=5, part=Part("one"), unread={"b": "refused"}, epoch="1")
    assert read(20, state, n=5, part=Part("one"), unread={"b": "refused"}, epoch="1") is state
    assert read(20, state, n=5, unread={"b": "late"}, epoch="1") is not state
    assert read(20, state, n=5, unread={"b": "refused"}, epoch="2") is not state


def test_a_long_gap_starts_every_counter_anew() -> None:
    state = read(10, n=5)
    late = after(state, [Observation("memory", "node", signals={"n": 5})], SPANS, {"memory": 10}, 1300)
    assert late.counters["n"].since == 1300


def test_a_new_part_closes_what_was_known_of_the_old_one() -> None:
    broken = Event("a.happened", 5)
    old = read(10, n=5, part=Part("one"), events=(broken,))
    new = read(20, old, n=9, part=Part("two"))
    assert (new.first, new.signs, rise(new.counters["n"], 600, 20)) == (20, {"part-replaced": 20}, 0)
    assert list(new.events) == ["memory a.happened"]


@pytest.mark.parametrize("part", [None, Part(""), Part("one", model="better known")])
def test_a_part_that_is_unknown_or_the_same_closes_nothing(part: Part | None) -> None:
    state = read(20, read(10, n=5, part=Part("one")), n=9, part=part)
    assert (state.first, state.part and state.part.id, rise(state.counters["n"], 600, 20)) == (10, "one", 4)


def test_a_new_epoch_starts_every_counter_anew() -> None:
    state = read(20, read(10, n=5, epoch="driver 1"), n=9, epoch="driver 2")
    assert rise(state.counters["n"], 600, 20) == 0


@pytest.mark.parametrize("status", ["failed", "hung"])
def test_what_was_read_and_cannot_be_now_is_unread(status: str) -> None:
    state = read(20, read(10, n=5), status=status, detail="refused")
    assert merged(state.sources) == ({}, {"n": "refused"})
    again = read(30, state, status=status, detail="still refused")
    assert merged(again.sources) == ({}, {"n": "still refused"})
    assert merged(read(40, again, n=5).sources) == ({"n": 5}, {})


def test_what_a_failed_reading_still_brought_counts() -> None:
    state = read(20, read(10, n=5), n=6, status="failed", detail="refused")
    assert merged(state.sources) == ({"n": 6}, {})


def test_a_counter_bridges_a_short_silence_and_no_long_one() -> None:
    """While a source fails nobody reads its counters, however often it is tried."""
    state = read(0, n=5)
    for now in range(10, 100, 10):
        state = read(now, state, status="failed", detail="refused")
    assert rise(read(100, state, n=9).counters["n"], 600, 100) == 4
    for now in range(100, 1300, 10):
        state = read(now, state, status="failed", detail="refused")
    assert rise(read(1300, state, n=9).counters["n"], 600, 1300) == 0


def test_a_failed_reading_belongs_to_no_epoch() -> None:
    state = read(10, n=5, epoch="driver 1")
    state = read(20, state, status="failed", detail="refused")
    assert rise(read(30, state, n=9, epoch="driver 1").counters["n"], 600, 30) == 4
    assert rise(read(30, state, n=9, epoch="driver 2").counters["n"], 600, 30) == 0


def test_what_a_failed_reading_brought_belongs_to_the_epoch_before() -> None:
    state = read(20, read(10, n=5, epoch="mig"), n=7, status="hung", detail="late")
    assert rise(read(30, state, n=9, epoch="mig").counters["n"], 600, 30) == 4


def test_a_slot_that_a_cut_round_did_not_reach_is_unknown() -> None:
    state = unreached(read(10, n=5), "memory", 10, "no answer")
    assert merged(state.sources) == ({}, {"n": "no answer"})


def test_a_source_that_finds_nothing_any_more_is_not_known_by_what_it_found() -> None:
    state = read(10, n=5)
    absent = Observation("memory", "node", "absent", detail="not there")
    assert merged(after(state, [absent], SPANS, {"memory": 10}, 20).sources) == ({}, {})


def test_a_slot_that_a_source_no_longer_finds_keeps_what_others_read() -> None:
    state = after(read(10, n=5), [Observation("pci", "node", signals={"m": 1})], SPANS, {}, 10)
    assert merged(gone(state, "memory").sources) == ({"m": 1}, {})


def test_signals_of_all_sources_stand_together() -> None:
    memories = {
        "one": SourceMemory({"a": 1}, {"b": "refused"}),
        "two": SourceMemory({"c": 2}, {"d": "late"}),
    }
    assert merged(memories) == ({"a": 1, "c": 2}, {"b": "refused", "d": "late"})


def test_what_one_source_refuses_another_may_have_read() -> None:
    memories = {"one": SourceMemory({}, {"a": "refused"}), "two": SourceMemory({"a": 1})}
    assert merged(memories)[0] == {"a": 1}
