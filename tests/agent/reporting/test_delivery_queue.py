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


def test_every_change_is_spooled_once() -> None:
    queue = DeliveryQueue()
    offered = [queue.offer(report, NOW) for report in (HEALTHY, HEALTHY, FAULTY, FAULTY, HEALTHY)]
    assert offered == [True, False, True, False, True]
    assert digests(queue.state) == [HEALTHY.digest, FAULTY.digest, HEALTHY.digest]


def test_only_a_change_wakes_the_sender() -> None:
    queue, woken = DeliveryQueue(), []
    queue.on_report = lambda: woken.append(len(queue.state.spool))
    for report in (HEALTHY, HEALTHY, FAULTY):
        queue.offer(report, NOW)
    assert woken == [1, 2]


def test_a_report_from_before_a_restart_is_no_change() -> None:
    queue = DeliveryQueue()
    queue.offer(FAULTY, NOW)
    restarted = DeliveryQueue(queue.state)
    assert not restarted.offer(FAULTY, NOW)
    assert digests(restarted.state) == [FAULTY.digest]


def test_without_aggregators_the_spool_is_dropped() -> None:
    queue = DeliveryQueue(spools=False)
    assert [queue.offer(report, NOW) for report in (HEALTHY, FAULTY, FAULTY)] == [True, True, False]
    assert (len(queue.state.spool), queue.state.spool.dropped) == (0, 0)
    assert not DeliveryQueue(queue.state).offer(FAULTY, NOW), "a restart tells nothing twice"
    waited = DeliveryQueue()
    waited.offer(HEALTHY, NOW)
    without = DeliveryQueue(waited.state, spools=False)
    assert (len(without.state.spool), without.state.spool.dropped) == (0, 1)


def test_sequences_rise_in_the_order_of_sending() -> None:
    queue = DeliveryQueue()
    queue.offer(HEALTHY, NOW)
    passed(queue)
    first = queue.number_latest(NOW.mono)
    queue.offer(FAULTY, NOW)
    assert queue.number_latest(NOW.mono) is None, "a transition is sent before"
    waiting = passed(queue)
    last = queue.number_latest(NOW.mono)
    assert first is not None
    assert last is not None
    assert first[0].sequence < waiting.sequence < last[0].sequence
    assert (first[0].digest, last[0].digest) == (HEALTHY.digest, FAULTY.digest)


def passed(queue: DeliveryQueue) -> Report:
    """Remove the oldest transition as acknowledged, and return it."""
    waiting = queue.oldest()
    assert waiting is not None
    assert queue.remove(waiting)
    assert not queue.remove(waiting), "only one acknowledgement removes it"
    return decode_entry(waiting.data)[0]


def test_sequences_rise_after_a_reboot() -> None:
    queue = DeliveryQueue()
    queue.offer(FAULTY, NOW)
    before = passed(queue)
    restarted = DeliveryQueue(queue.state)
    restarted.offer(HEALTHY, replace(NOW, mono=1.0))
    assert passed(restarted).sequence > before.sequence


def test_an_instruction_is_returned_once_and_again_after_a_restart() -> None:
    queue = DeliveryQueue()
    queue.receive([DetachGpus("1", 60.0), DetachGpus("2", 60.0)])
    assert [instruction.id for instruction in queue.take_instructions()] == ["1", "2"]
    queue.receive([DetachGpus("1", 60.0)])
    assert queue.take_instructions() == []
    queue.record_result(InstructionResult("1", done=True))
    restarted = DeliveryQueue(queue.state)
    assert [instruction.id for instruction in restarted.take_instructions()] == ["2"]
    restarted.receive([DetachGpus("1", 60.0), DetachGpus("2", 60.0)])
    assert restarted.take_instructions() == []


def test_only_the_latest_change_has_passing_checks() -> None:
    proven = (ReportedPassing(("gpu-lost",), ("gpu/0000:3b:00",)),)
    queue = DeliveryQueue()
    for report in (HEALTHY, FAULTY, HEALTHY):
        queue.offer(replace(report, passing=proven), NOW)
    assert [decode_entry(entry.data)[0].passing for entry in queue.state.spool.entries] == [(), (), proven]
    assert digests(queue.state) == [HEALTHY.digest, FAULTY.digest, HEALTHY.digest]
