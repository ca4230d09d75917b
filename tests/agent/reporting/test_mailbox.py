from __future__ import annotations

from msgspec.structs import replace

from nodeguard.agent.reporting.kept import restored
from nodeguard.agent.reporting.mailbox import Mailbox, Post
from nodeguard.wire.instruction import RunTest
from nodeguard.wire.of_verdict import report
from nodeguard.wire.report import Answered, InOrder, Report
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
    box, woken = Mailbox(), []
    box.wake = lambda: woken.append(len(box.post.spool))
    for one in (FINE, FINE, SICK):
        box.offer(one, NOW)
    assert woken == [1, 2]


def test_what_was_offered_before_a_restart_is_no_change_after_it() -> None:
    box = Mailbox()
    box.offer(SICK, NOW)
    again = Mailbox(box.post)
    assert not again.offer(SICK, NOW)
    assert digests(again.post) == [SICK.digest]


def test_where_nobody_is_told_nothing_waits_and_what_waited_is_let_go() -> None:
    box = Mailbox(spools=False)
    assert [box.offer(one, NOW) for one in (FINE, SICK, SICK)] == [True, True, False]
    assert (len(box.post.spool), box.post.spool.dropped) == (0, 0)
    assert not Mailbox(box.post).offer(SICK, NOW), "a restart tells nothing twice"
    waited = Mailbox()
    waited.offer(FINE, NOW)
    without = Mailbox(waited.post, spools=False)
    assert (len(without.post.spool), without.post.spool.dropped) == (0, 1)


def test_messages_are_numbered_in_the_order_in_which_they_are_heard() -> None:
    box = Mailbox()
    box.offer(FINE, NOW)
    passed(box)
    first = box.current(NOW.mono)
    box.offer(SICK, NOW)
    assert box.current(NOW.mono) is None, "a transition is to be heard before"
    waiting = passed(box)
    last = box.current(NOW.mono)
    assert first is not None
    assert last is not None
    assert first[0].sequence < waiting.sequence < last[0].sequence
    assert (first[0].digest, last[0].digest) == (FINE.digest, SICK.digest)


def passed(box: Mailbox) -> Report:
    """The oldest transition, which then was heard."""
    waiting = box.first()
    assert waiting is not None
    assert box.done(waiting)
    assert not box.done(waiting), "once, whoever hears it"
    return restored(waiting.data)[0]


def test_numbers_rise_where_the_clock_of_the_boot_begins_anew() -> None:
    box = Mailbox()
    box.offer(SICK, NOW)
    before = passed(box)
    again = Mailbox(box.post)
    again.offer(FINE, replace(NOW, mono=1.0))
    assert passed(again).sequence > before.sequence


def test_an_instruction_is_given_out_once_and_again_after_a_restart_until_it_is_done() -> None:
    box = Mailbox()
    box.receive([RunTest("1", "t"), RunTest("2", "t")])
    assert [one.id for one in box.take()] == ["1", "2"]
    box.receive([RunTest("1", "t")])
    assert box.take() == []
    box.carried_out(Answered("1", done=True))
    again = Mailbox(box.post)
    assert [one.id for one in again.take()] == ["2"]
    again.receive([RunTest("1", "t"), RunTest("2", "t")])
    assert again.take() == []


def test_what_is_proven_is_kept_of_the_latest_change_alone() -> None:
    proven = (InOrder(("gpu-lost",), ("gpu/0000:3b:00",)),)
    box = Mailbox()
    for one in (FINE, SICK, FINE):
        box.offer(replace(one, proven=proven), NOW)
    assert [restored(entry.data)[0].proven for entry in box.post.spool.entries] == [(), (), proven]
    assert digests(box.post) == [FINE.digest, SICK.digest, FINE.digest]
