from __future__ import annotations

from msgspec.structs import replace

from nodeguard.agent.reporting.delivery_queue import DeliveryQueue, DeliveryState, decode_entry
from nodeguard.wire.instruction import DetachGpus
from nodeguard.wire.report import InstructionResult, Report, ReportedPassing
from nodeguard.wire.report_builder import build_report
from tests.wire.scene import FACTS, NOW, finding, verdict

HEALTHY = build_report(verdict(), NOW, FACTS)
FAULTY = build_report(verdict(finding()), NOW, FACTS)


def digests(state: DeliveryState) -> list[str]:
    return [decode_entry(entry.data)[0].digest for entry in state.spool.entries]


def test_every_change_waits_and_nothing_twice() -> None:
    queue = DeliveryQueue()
    offered = [queue.offer(one, NOW) for one in (HEALTHY, HEALTHY, FAULTY, FAULTY, HEALTHY)]
    assert offered == [True, False, True, False, True]
    assert digests(queue.state) == [HEALTHY.digest, FAULTY.digest, HEALTHY.digest]


def test_only_a_change_wakes_the_sender() -> None:
    queue, woken = DeliveryQueue(), []
    queue.on_report = lambda: woken.append(len(queue.state.spool))
    for one in (HEALTHY, HEALTHY, FAULTY):
        queue.offer(one, NOW)
    assert woken == [1, 2]


def test_what_was_offered_before_a_restart_is_no_change_after_it() -> None:
    queue = DeliveryQueue()
    queue.offer(FAULTY, NOW)
    again = DeliveryQueue(queue.state)
    assert not again.offer(FAULTY, NOW)
    assert digests(again.state) == [FAULTY.digest]


def test_where_nobody_is_told_nothing_waits_and_what_waited_is_let_go() -> None:
    queue = DeliveryQueue(spools=False)
    assert [queue.offer(one, NOW) for one in (HEALTHY, FAULTY, FAULTY)] == [True, True, False]
    assert (len(queue.state.spool), queue.state.spool.dropped) == (0, 0)
    assert not DeliveryQueue(queue.state).offer(FAULTY, NOW), "a restart tells nothing twice"
    waited = DeliveryQueue()
    waited.offer(HEALTHY, NOW)
    without = DeliveryQueue(waited.state, spools=False)
    assert (len(without.state.spool), without.state.spool.dropped) == (0, 1)


def test_messages_are_numbered_in_the_order_in_which_they_are_heard() -> None:
    queue = DeliveryQueue()
    queue.offer(HEALTHY, NOW)
    passed(queue)
    first = queue.number_latest(NOW.mono)
    queue.offer(FAULTY, NOW)
    assert queue.number_latest(NOW.mono) is None, "a transition is to be heard before"
    waiting = passed(queue)
    last = queue.number_latest(NOW.mono)
    assert first is not None
    assert last is not None
    assert first[0].sequence < waiting.sequence < last[0].sequence
    assert (first[0].digest, last[0].digest) == (HEALTHY.digest, FAULTY.digest)


def passed(queue: DeliveryQueue) -> Report:
    """The oldest transition, which then was heard."""
    waiting = queue.oldest()
    assert waiting is not None
    assert queue.remove(waiting)
    assert not queue.remove(waiting), "once, whoever hears it"
    return decode_entry(waiting.data)[0]


def test_numbers_rise_where_the_clock_of_the_boot_begins_anew() -> None:
    queue = DeliveryQueue()
    queue.offer(FAULTY, NOW)
    before = passed(queue)
    again = DeliveryQueue(queue.state)
    again.offer(HEALTHY, replace(NOW, mono=1.0))
    assert passed(again).sequence > before.sequence


def test_an_instruction_is_given_out_once_and_again_after_a_restart_until_it_is_done() -> None:
    queue = DeliveryQueue()
    queue.receive([DetachGpus("1", 60.0), DetachGpus("2", 60.0)])
    assert [one.id for one in queue.take_instructions()] == ["1", "2"]
    queue.receive([DetachGpus("1", 60.0)])
    assert queue.take_instructions() == []
    queue.record_result(InstructionResult("1", done=True))
    again = DeliveryQueue(queue.state)
    assert [one.id for one in again.take_instructions()] == ["2"]
    again.receive([DetachGpus("1", 60.0), DetachGpus("2", 60.0)])
    assert again.take_instructions() == []


def test_what_is_proven_is_kept_of_the_latest_change_alone() -> None:
    proven = (ReportedPassing(("gpu-lost",), ("gpu/0000:3b:00",)),)
    queue = DeliveryQueue()
    for one in (HEALTHY, FAULTY, HEALTHY):
        queue.offer(replace(one, passing=proven), NOW)
    assert [decode_entry(entry.data)[0].passing for entry in queue.state.spool.entries] == [(), (), proven]
    assert digests(queue.state) == [HEALTHY.digest, FAULTY.digest, HEALTHY.digest]
