from __future__ import annotations

from nodeguard.agent.reporting.kept import restored
from nodeguard.agent.reporting.mailbox import Mailbox, Post
from nodeguard.wire.instruction import RunTest
from nodeguard.wire.of_verdict import report
from tests.wire.scene import FACTS, NOW, finding, verdict

FINE = report(verdict(), NOW, FACTS)
SICK = report(verdict(finding()), NOW, FACTS)


def digests(post: Post) -> list[str]:
    return [restored(entry.data)[0].digest for entry in post.spool.entries]


def test_every_change_waits_and_nothing_twice() -> None:
    box = Mailbox()
    offered = [box.offer(one, NOW) for one in (FINE, FINE, SICK, SICK, FINE)]
    assert offered == [True, False, True, False, True]
    assert digests(box.post) == [FINE.digest, SICK.digest, FINE.digest]


def test_only_a_change_wakes_the_sender() -> None:
    box = Mailbox()
    for one, wakes in ((FINE, True), (FINE, False), (SICK, True)):
        box.wake.clear()
        box.offer(one, NOW)
        assert box.wake.is_set() == wakes


def test_what_was_offered_before_a_restart_is_no_change_after_it() -> None:
    box = Mailbox()
    box.offer(SICK, NOW)
    again = Mailbox(box.post)
    assert not again.offer(SICK, NOW)
    assert digests(again.post) == [SICK.digest]


def test_messages_are_numbered_in_the_order_in_which_they_are_heard() -> None:
    box = Mailbox()
    first = box.number(NOW.mono)
    box.offer(SICK, NOW)
    assert box.number(NOW.mono) is None, "a transition is to be heard before"
    waiting = box.first()
    assert waiting is not None
    box.done(waiting)
    last = box.number(NOW.mono)
    assert first is not None
    assert last is not None
    assert first < restored(waiting.data)[0].sequence < last


def test_numbers_rise_where_the_clock_of_the_boot_begins_anew() -> None:
    box = Mailbox()
    before = box.number(NOW.mono)
    after = Mailbox(box.post).number(1.0)
    assert before is not None
    assert after is not None
    assert after > before


def test_an_instruction_is_given_out_once_and_again_after_a_restart_until_it_is_done() -> None:
    box = Mailbox()
    box.receive([RunTest("1", "t"), RunTest("2", "t")])
    assert [one.id for one in box.take()] == ["1", "2"]
    box.receive([RunTest("1", "t")])
    assert box.take() == []
    box.carried_out("1")
    again = Mailbox(box.post)
    assert [one.id for one in again.take()] == ["2"]
    again.receive([RunTest("1", "t"), RunTest("2", "t")])
    assert again.take() == []
