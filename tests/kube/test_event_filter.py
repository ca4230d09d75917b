from __future__ import annotations

from nodeguard.kube.event_filter import BURST, EVERY, SIMILAR, WINDOW, Counted, EventFilter, Said

MARKED = Said("gpu-7", "u7", "Warning", "NodeQuarantined", "GPU 0000:3b:00 fell off the bus")


def said(message: str, node: str = "gpu-7") -> Said:
    return Said(node, f"uid of {node}", "Warning", "NodeQuarantined", message)


def test_the_same_again_is_counted() -> None:
    events = EventFilter("a")
    first, second = events.take(MARKED, 10.0), events.take(MARKED, 20.0)
    assert first == Counted(MARKED, "gpu-7.a1", 1, 10.0, 10.0)
    assert second == Counted(MARKED, "gpu-7.a1", 2, 10.0, 20.0)


def test_many_that_differ_in_words_become_one() -> None:
    events = EventFilter("a")
    taken = [events.take(said(f"GPU {number}"), 0.0) for number in range(SIMILAR + 3)]
    assert len({one.name for one in taken[:SIMILAR] if one}) == SIMILAR
    combined = taken[SIMILAR:]
    assert [one and one.count for one in combined] == [1, 2, 3]
    assert combined[-1] is not None
    assert combined[-1].said.message == f"(combined from similar events): GPU {SIMILAR + 2}"
    later = events.take(said("GPU 99"), WINDOW + 1.0)
    assert later is not None
    assert later.said.message == "GPU 99"


def test_who_says_too_much_of_one_object_is_cut_short() -> None:
    events = EventFilter("a")
    taken = [events.take(MARKED, 0.0) for _ in range(BURST + 5)]
    assert sum(one is not None for one in taken) == BURST
    assert events.take(said("other", "gpu-8"), 0.0) is not None
    assert events.take(MARKED, EVERY - 1.0) is None
    one = events.take(MARKED, EVERY + 1.0)
    assert one is not None
    # What was not sent counts all the same.
    assert one.count == BURST + 7
    assert events.take(MARKED, EVERY + 2.0) is None


def test_what_is_remembered_is_bounded() -> None:
    events = EventFilter("a")
    for number in range(5000):
        events.take(said("x", f"gpu-{number}"), 0.0)
    assert max(len(kept) for kept in (events._buckets, events._groups, events._counted)) <= 4096


def test_a_long_name_leaves_room() -> None:
    taken = EventFilter("a").take(said("x", "n" * 199 + "." + "n" * 50), 0.0)
    assert taken is not None
    assert taken.name == "n" * 199 + ".a1"
