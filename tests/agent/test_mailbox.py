from __future__ import annotations

from nodeguard.agent.mailbox import Mailbox
from nodeguard.agent.spool import MOST_ENTRIES
from nodeguard.wire.instruction import RunTest
from nodeguard.wire.of_verdict import report
from tests.wire.scene import FACTS, NOW, finding, verdict

FINE = report(verdict(), NOW, FACTS)
SICK = report(verdict(finding()), NOW, FACTS)


def test_every_change_is_collected_and_nothing_twice() -> None:
    box = Mailbox()
    for one in (FINE, FINE, SICK, SICK, FINE):
        box.offer(one, NOW)
    assert [one for one, _ in box.collect()] == [FINE, SICK, FINE]
    assert box.collect() == []


def test_only_a_change_wakes_the_sender() -> None:
    box = Mailbox()
    for one, wakes in ((FINE, True), (FINE, False), (SICK, True)):
        box.wake.clear()
        box.offer(one, NOW)
        assert box.wake.is_set() == wakes
        box.collect()


def test_a_sender_that_does_not_come_costs_the_oldest_change() -> None:
    box = Mailbox()
    for at in range(MOST_ENTRIES + 3):
        box.offer((FINE, SICK)[at % 2], NOW)
    assert (len(box.collect()), box.lost) == (MOST_ENTRIES, 3)


def test_an_instruction_is_given_out_once_and_again_after_a_restart_until_it_is_done() -> None:
    box = Mailbox()
    box.receive([RunTest("1", "t"), RunTest("2", "t")])
    assert [one.id for one in box.take()] == ["1", "2"]
    box.receive([RunTest("1", "t")])
    assert box.take() == []
    box.carried_out("1")
    again = Mailbox(box.inbox)
    assert [one.id for one in again.take()] == ["2"]
    again.receive([RunTest("1", "t"), RunTest("2", "t")])
    assert again.take() == []
