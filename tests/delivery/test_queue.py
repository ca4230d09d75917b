"""The queue of one webhook: order by key, retries, expiry and bound."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from nodeguard.delivery import queue as queue_module
from nodeguard.delivery.queue import FIRST_RETRY, LONGEST_RETRY, Message, MessageQueue

DAY = 86_400.0


def message(number: int, key: str = "", expires_at: float | None = None) -> Message:
    return Message(f"id-{number}", key or f"key-{number}", b"{}", float(number), expires_at=expires_at)


def sent(queue: MessageQueue, now: float = 0.0) -> list[str]:
    """Accept all messages that are due, and return their ids."""
    ids = []
    while (item := queue.next(now)[0]) is not None:
        queue.accepted(item)
        ids.append(item.id)
    return ids


def fail(queue: MessageQueue, now: float, retry_after: float = 0.0) -> Message:
    """Fail the next attempt."""
    item, _ = queue.next(now)
    assert item is not None
    queue.failed(item, now, 1.0, retry_after)
    return item


def test_a_message_that_always_fails_delays_no_other_by_more_than_a_second() -> None:
    queue = MessageQueue()
    queue.put(message(0))
    now = 0.0
    for _ in range(20):
        fail(queue, now)
        now += queue.next(now)[1]
    fail(queue, now)
    queue.put(message(1))
    assert queue.next(now) == (None, FIRST_RETRY)
    assert sent(queue, now + FIRST_RETRY) == ["id-1"]
    assert queue.next(now + FIRST_RETRY) == (None, LONGEST_RETRY - FIRST_RETRY)


def test_a_receiver_that_is_down_gets_few_attempts_and_everything_after_its_repair() -> None:
    queue = MessageQueue()
    for number in range(280):
        queue.put(message(number))
    now, attempts = 0.0, 0
    while now < 3600.0:
        attempts += 1
        fail(queue, now)
        now += queue.next(now)[1]
    assert attempts < 70
    assert sorted(sent(queue, now), key=lambda name: int(name[3:])) == [f"id-{n}" for n in range(280)]


def test_later_messages_of_a_key_wait_for_the_first() -> None:
    queue = MessageQueue()
    for number, key in enumerate(("a", "a", "b")):
        queue.put(message(number, key))
    fail(queue, 0.0)
    assert sent(queue, FIRST_RETRY / 2) == []
    assert sent(queue, FIRST_RETRY) == ["id-2", "id-0", "id-1"]


def test_the_receiver_delays_all_messages_by_retry_after() -> None:
    queue = MessageQueue()
    queue.put(message(0))
    fail(queue, 0.0, retry_after=300.0)
    queue.put(message(1))
    assert queue.next(0.0) == (None, 300.0)
    assert sent(queue, 300.0) == ["id-1", "id-0"]


def test_a_retry_after_of_a_year_delays_an_hour() -> None:
    queue = MessageQueue()
    queue.put(message(0))
    fail(queue, 0.0, retry_after=365 * DAY)
    assert queue.next(0.0) == (None, 3600.0)


def test_a_message_expires_unless_it_is_in_transit_or_has_no_expiry() -> None:
    queue = MessageQueue()
    for number, expires_at in enumerate((DAY, DAY, None)):
        queue.put(message(number, expires_at=expires_at))
    assert queue.next(0.0)[0] == message(0, expires_at=DAY)
    assert list(queue.expire(DAY)) == []
    assert [item.id for item in queue.expire(DAY + 1.0)] == ["id-1"]
    assert [item.id for item in queue.waiting] == ["id-0", "id-2"]


def test_renewed_messages_of_a_key_expire_later() -> None:
    queue = MessageQueue()
    queue.put(message(0, "a", DAY))
    queue.put(message(1, "b", DAY))
    queue.put(message(2, "a"))
    queue.renew("a", 2 * DAY)
    assert [item.id for item in queue.expire(1.5 * DAY)] == ["id-1"]
    assert [item.expires_at for item in queue.waiting] == [2 * DAY, None]


def test_a_full_queue_drops_the_oldest_that_is_not_in_transit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_module, "MAX_PENDING", 2)
    queue = MessageQueue()
    queue.put(message(0))
    queue.next(0.0)
    assert [item.id for number in (1, 2, 3) for item in queue.put(message(number))] == ["id-1", "id-2"]
    assert [item.id for item in queue.waiting] == ["id-0", "id-3"]


def test_messages_of_an_earlier_start_come_first() -> None:
    queue = MessageQueue()
    queue.put(message(9))
    queue.restore([message(0), message(1)])
    assert sent(queue) == ["id-0", "id-1", "id-9"]


class QueueMachine(RuleBasedStateMachine):
    """A receiver that fails, refuses and restarts at any time loses nothing within the age, and keeps the
    order.
    """

    def __init__(self) -> None:
        super().__init__()
        self.queue = MessageQueue()
        self.now = 0.0
        self.added: dict[str, list[str]] = defaultdict(list)
        self.accepted: dict[str, list[str]] = defaultdict(list)
        self.lost: set[str] = set()
        self.count = 0

    @rule(key=st.sampled_from("abcde"), lives=st.sampled_from([None, 30.0, 3600.0]))
    def put(self, key: str, lives: float | None) -> None:
        self.count += 1
        item = message(self.count, key, None if lives is None else self.now + lives)
        self.added[key].append(item.id)
        assert not self.queue.put(item)

    @rule(
        result=st.sampled_from(["accepted", "accepted", "failed", "refused"]),
        fraction=st.floats(0.0, 1.0),
        retry_after=st.sampled_from([0.0, 0.0, 20.0]),
    )
    def attempt(self, result: str, fraction: float, retry_after: float) -> None:
        item, wait = self.queue.next(self.now)
        if item is None:
            assert wait == float("inf") if not len(self.queue) else 0.0 < wait <= LONGEST_RETRY
            return
        if result == "failed":
            self.queue.failed(item, self.now, fraction, retry_after)
        elif result == "refused":
            self.queue.refused(item)
            self.lost.add(item.id)
        else:
            self.queue.accepted(item)
            self.accepted[item.key].append(item.id)

    @rule(seconds=st.sampled_from([0.5, 5.0, 70.0]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def expire(self) -> None:
        for item in self.queue.expire(self.now):
            assert item.expires_at is not None
            assert item.expires_at < self.now
            self.lost.add(item.id)

    @rule()
    def restart(self) -> None:
        waiting = self.queue.waiting
        self.queue = MessageQueue()
        self.queue.restore(waiting)

    @invariant()
    def each_message_waits_or_was_accepted_in_order(self) -> None:
        waiting = [item.id for item in self.queue.waiting]
        for key, ids in self.added.items():
            due = [name for name in ids if name not in self.lost]
            assert due == self.accepted[key] + [name for name in waiting if name in due]

    def teardown(self) -> None:
        """The receiver works again: everything comes within a minute."""
        self.now += LONGEST_RETRY
        for key, name in [(item.key, item.id) for item in self.queue.waiting]:
            assert name not in self.accepted[key]
        sent(self.queue, self.now)
        assert not len(self.queue)


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
