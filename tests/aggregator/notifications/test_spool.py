"""The spool file of notifications: what survives a restart, and what a full queue drops."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from nodeguard.aggregator.notifications.spool import (
    FILE_LIMIT,
    SpoolError,
    decode_spool,
    encode_spool,
    least_needed,
    message_of,
)
from nodeguard.aggregator.notifications.subscription import SubscriptionState
from nodeguard.delivery import queue as queue_module
from nodeguard.delivery.queue import MAX_PENDING, Message, MessageQueue
from tests.aggregator.notifications.scene import NOW, incident, notification


@pytest.mark.parametrize(
    "content", [b"", b"{", b'{"version": 9, "waiting": {}}', b'{"version": 2}', b"[" * 100_000]
)
def test_a_damaged_file_is_refused(content: bytes) -> None:
    with pytest.raises(SpoolError):
        decode_spool(content)


def change(text: str, at: float = 0.0) -> Message:
    """Return a message from the name of an incident and its change, such as `1 opened`."""
    name, _, kind = text.partition(" ")
    return Message(f"{name}-{kind}-{at}", name, b"", NOW + at, kind)


@pytest.mark.parametrize(
    ("rest", "expected"),
    [
        # A later notification has the state of an update.
        (["2 updated", "1 updated", "1 updated"], ["2 updated", "1 updated"]),
        (["2 updated", "1 updated", "1 resolved"], ["2 updated", "1 resolved"]),
        # It began and ended unseen.
        (["1 updated", "2 opened", "2 resolved"], ["1 updated"]),
        (["2 opened", "1 resolved", "2 resolved"], ["1 resolved"]),
        # The receiver needs all of them, an end most.
        (["1 opened", "2 updated", "3 updated"], ["1 opened", "3 updated"]),
        (["1 resolved", "2 opened", "3 opened"], ["1 resolved", "3 opened"]),
        (["1 resolved", "2 resolved", "3 resolved"], ["2 resolved", "3 resolved"]),
    ],
)
def test_a_full_queue_drops_first_what_a_receiver_needs_least(
    monkeypatch: pytest.MonkeyPatch, rest: list[str], expected: list[str]
) -> None:
    monkeypatch.setattr(queue_module, "MAX_PENDING", 3)
    queue = MessageQueue(least_needed)
    queue.put(change("sent opened"))
    queue.next(0.0)  # it is being sent
    dropped = [item for number, text in enumerate(rest) for item in queue.put(change(text, float(number)))]
    assert [f"{item.key} {item.kind}" for item in queue.waiting] == ["sent opened", *expected]
    assert len(dropped) == len(rest) - len(expected)


def test_the_largest_spool_can_be_read_again() -> None:
    text = "\u2713" * 1024
    largest = replace(notification(), text=text, id="i" * 300, incident="n" * 256, target="t" * 256)
    messages = tuple(message_of(replace(largest, id=f"{number:0300}"), NOW) for number in range(100))
    opened = {f"{number:0256}": replace(incident(), name=f"{number:0256}") for number in range(100)}
    waiting = dict.fromkeys((f"{number:0256}" for number in range(100)), "u" * 36)
    state, later = SubscriptionState(opened), SubscriptionState(waiting=waiting)
    bare, single, double, waits = (
        len(encode_spool({"a": messages}, states))
        for states in ({}, {"a": state}, {"a": state, "b": state}, {"a": later})
    )
    of_one = max(double - single, waits - bare)
    per_webhook = bare / 100 * MAX_PENDING + of_one / 100 * 20_000
    assert 20 * per_webhook + (single - bare) / 100 * 20_000 < FILE_LIMIT
    for restored in ({"a": state}, {"a": later}):
        assert decode_spool(encode_spool({"a": messages}, restored)) == ({"a": messages}, restored)
