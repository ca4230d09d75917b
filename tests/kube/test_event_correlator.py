from __future__ import annotations

from nodeguard.kube.event_correlator import (
    BURST,
    MAX_SIMILAR,
    REFILL_SECONDS,
    SIMILAR_SECONDS,
    CountedEvent,
    EventContent,
    EventCorrelator,
)

MARKED = EventContent("gpu-7", "u7", "Warning", "NodeQuarantined", "GPU 0000:3b:00 fell off the bus")


def content(message: str, node: str = "gpu-7") -> EventContent:
    return EventContent(node, f"uid of {node}", "Warning", "NodeQuarantined", message)


def test_equal_events_are_counted() -> None:
    events = EventCorrelator("a")
    first, second = events.correlate(MARKED, 10.0), events.correlate(MARKED, 20.0)
    assert first == CountedEvent(MARKED, "gpu-7.a1", 1, 10.0, 10.0)
    assert second == CountedEvent(MARKED, "gpu-7.a1", 2, 10.0, 20.0)


def test_many_similar_events_become_one() -> None:
    events = EventCorrelator("a")
    taken = [events.correlate(content(f"GPU {number}"), 0.0) for number in range(MAX_SIMILAR + 3)]
    assert len({event.name for event in taken[:MAX_SIMILAR] if event}) == MAX_SIMILAR
    combined = taken[MAX_SIMILAR:]
    assert [event and event.count for event in combined] == [1, 2, 3]
    assert combined[-1] is not None
    assert combined[-1].content.message == f"(combined from similar events): GPU {MAX_SIMILAR + 2}"
    later = events.correlate(content("GPU 99"), SIMILAR_SECONDS + 1.0)
    assert later is not None
    assert later.content.message == "GPU 99"


def test_the_events_of_one_object_are_limited() -> None:
    events = EventCorrelator("a")
    taken = [events.correlate(MARKED, 0.0) for _ in range(BURST + 5)]
    assert sum(event is not None for event in taken) == BURST
    assert events.correlate(content("other", "gpu-8"), 0.0) is not None
    assert events.correlate(MARKED, REFILL_SECONDS - 1.0) is None
    event = events.correlate(MARKED, REFILL_SECONDS + 1.0)
    assert event is not None
    # What was not sent counts all the same.
    assert event.count == BURST + 7
    assert events.correlate(MARKED, REFILL_SECONDS + 2.0) is None


def test_the_memory_of_events_is_bounded() -> None:
    events = EventCorrelator("a")
    for number in range(5000):
        events.correlate(content("x", f"gpu-{number}"), 0.0)
    assert max(len(sent) for sent in (events._buckets, events._groups, events._counted)) <= 4096


def test_a_long_name_is_cut() -> None:
    taken = EventCorrelator("a").correlate(content("x", "n" * 199 + "." + "n" * 50), 0.0)
    assert taken is not None
    assert taken.name == "n" * 199 + ".a1"
