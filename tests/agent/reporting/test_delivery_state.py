from __future__ import annotations

from msgspec.structs import replace

from nodeguard.agent.reporting.delivery_state import DeliveryQueue, DeliveryState
from nodeguard.agent.reporting.spool import restored
from nodeguard.wire.instruction import RunTest
from nodeguard.wire.report import InstructionResult, PassingChecks, Report
from nodeguard.wire.report_builder import build_report
from tests.wire.scene import FACTS, NOW, finding, verdict

FINE = build_report(verdict(), NOW, FACTS)
SICK = build_report(verdict(finding()), NOW, FACTS)


def digests(post: DeliveryState) -> list[str]:
    return [restored(entry.data)[0].digest for entry in post.spool.entries]


def test_every_change_waits_and_nothing_twice() -> None:
    box = DeliveryQueue()
    offered = [box.offer(one, NOW) for one in (FINE, FINE, SICK, SICK, FINE)]
    assert offered == [True, False, True, False, True]
    assert digests(box.state) == [FINE.digest, SICK.digest, FINE.digest]


def test_only_a_change_wakes_the_sender() -> None:
    box, woken = DeliveryQueue(), []
    box.wake = lambda: woken.append(len(box.state.spool))
    for one in (FINE, FINE, SICK):
        box.offer(one, NOW)
    assert woken == [1, 2]


def test_what_was_offered_before_a_restart_is_no_change_after_it() -> None:
    box = DeliveryQueue()
    box.offer(SICK, NOW)
    again = DeliveryQueue(box.state)
    assert not again.offer(SICK, NOW)
    assert digests(again.state) == [SICK.digest]


def test_where_nobody_is_told_nothing_waits_and_what_waited_is_let_go() -> None:
    box = DeliveryQueue(spools=False)
    assert [box.offer(one, NOW) for one in (FINE, SICK, SICK)] == [True, True, False]
    assert (len(box.state.spool), box.state.spool.dropped) == (0, 0)
    assert not DeliveryQueue(box.state).offer(SICK, NOW), "a restart tells nothing twice"
    waited = DeliveryQueue()
    waited.offer(FINE, NOW)
    without = DeliveryQueue(waited.state, spools=False)
    assert (len(without.state.spool), without.state.spool.dropped) == (0, 1)


def test_messages_are_numbered_in_the_order_in_which_they_are_heard() -> None:
    box = DeliveryQueue()
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


def passed(box: DeliveryQueue) -> Report:
    """The oldest transition, which then was heard."""
    waiting = box.first()
    assert waiting is not None
    assert box.done(waiting)
    assert not box.done(waiting), "once, whoever hears it"
    return restored(waiting.data)[0]


def test_numbers_rise_where_the_clock_of_the_boot_begins_anew() -> None:
    box = DeliveryQueue()
    box.offer(SICK, NOW)
    before = passed(box)
    again = DeliveryQueue(box.state)
    again.offer(FINE, replace(NOW, mono=1.0))
    assert passed(again).sequence > before.sequence


def test_an_instruction_is_given_out_once_and_again_after_a_restart_until_it_is_done() -> None:
    box = DeliveryQueue()
    box.receive([RunTest("1", "t"), RunTest("2", "t")])
    assert [one.id for one in box.take()] == ["1", "2"]
    box.receive([RunTest("1", "t")])
    assert box.take() == []
    box.carried_out(InstructionResult("1", done=True))
    again = DeliveryQueue(box.state)
    assert [one.id for one in again.take()] == ["2"]
    again.receive([RunTest("1", "t"), RunTest("2", "t")])
    assert again.take() == []


def test_what_is_proven_is_kept_of_the_latest_change_alone() -> None:
    proven = (PassingChecks(("gpu-lost",), ("gpu/0000:3b:00",)),)
    box = DeliveryQueue()
    for one in (FINE, SICK, FINE):
        box.offer(replace(one, proven=proven), NOW)
    assert [restored(entry.data)[0].passing for entry in box.state.spool.entries] == [(), (), proven]
    assert digests(box.state) == [FINE.digest, SICK.digest, FINE.digest]
