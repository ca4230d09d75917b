from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace

from nodeguard.agent.reporting.delivery_queue import (
    MAX_BYTES,
    MAX_ENTRIES,
    DeliveryQueue,
    DeliveryState,
    Spool,
    append,
    decode_entry,
    encode_entry,
    remove,
    set_age,
)
from nodeguard.wire.encoding import EncodingError
from nodeguard.wire.instruction import DetachGpus
from nodeguard.wire.report import VERSION, InstructionResult, Report, ReportedEvidence, ReportedPassing
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
    assert not DeliveryQueue(queue.state).offer(FAULTY, NOW), "a restart reports nothing twice"
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


NUMBERED = build_report(verdict(finding()), NOW, FACTS, 7)
EXAMPLES = Path(__file__).parent.parent.parent / "wire" / "examples"


def filled(*sizes: int) -> Spool:
    spool = Spool()
    for size in sizes:
        spool = append(spool, bytes(size))
    return spool


def test_entries_are_removed_by_number_and_no_number_is_used_again() -> None:
    spool = remove(filled(1, 2, 3), 2)
    assert [entry.number for entry in append(spool, b"x").entries] == [1, 3, 4]
    assert spool.dropped == 0
    assert remove(spool, 2) == spool
    assert remove(spool, 3, acknowledged=False).dropped == 1


def test_the_oldest_entries_are_dropped() -> None:
    spool = filled(*[1] * (MAX_ENTRIES + 2))
    assert (len(spool), spool.entries[0].number, spool.dropped) == (MAX_ENTRIES, 3, 2)


def test_an_entry_above_the_limit_is_dropped() -> None:
    spool = filled(10, MAX_BYTES + 1)
    assert (len(spool), spool.dropped) == (0, 2)


@given(st.lists(st.integers(0, MAX_BYTES // 3), max_size=2 * MAX_ENTRIES))
def test_the_spool_stays_within_its_limits_and_counts_drops(sizes: list[int]) -> None:
    spool = filled(*sizes)
    assert len(spool) <= MAX_ENTRIES
    assert sum(len(entry.data) for entry in spool.entries) <= MAX_BYTES
    assert len(spool) + spool.dropped == len(sizes)
    assert [len(entry.data) for entry in spool.entries] == sizes[spool.dropped :]


def test_an_entry_is_decoded_as_it_was_encoded() -> None:
    assert decode_entry(encode_entry(NUMBERED, NOW)) == (NUMBERED, NOW)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_an_entry_of_another_version_is_sent_as_this_one(version: int) -> None:
    entry = msgspec.json.encode(
        {"at": NOW, "report": Raw((EXAMPLES / f"report-{version}.json").read_bytes())}
    )
    report, at = decode_entry(entry)
    assert (report.version, report.sequence, at) == (VERSION, 5000123, NOW)


def test_ages_of_a_fast_recording_are_in_real_seconds() -> None:
    """Otherwise a fleet shows a fault of a replay that is older than the replay."""
    [raised] = NUMBERED.findings
    evidence = ReportedEvidence("kmsg", "Xid 79", age=120.0)
    report = replace(NUMBERED, findings=(replace(raised, age=600.0, evidence=(evidence,)),))
    [sent] = set_age(report, NOW, NOW, speed=60.0).findings
    assert (sent.age, sent.evidence[0].age) == (10.0, 2.0)


@pytest.mark.parametrize("data", [b"", b"{}", b"[" * 99_999, b'{"at": 1}', b"\xff"])
def test_an_invalid_entry_is_refused(data: bytes) -> None:
    with pytest.raises(EncodingError, match="skipped"):
        decode_entry(data)


def test_the_age_grows_while_an_entry_waits() -> None:
    later = replace(NOW, mono=NOW.mono + 60.0, wall=NOW.wall - 9e6)
    assert set_age(NUMBERED, NOW, later).age == 60.0
    assert set_age(NUMBERED, NOW, later).findings == NUMBERED.findings
    assert set_age(NUMBERED, NOW, later, speed=30.0).age == 2.0
    rebooted = replace(NOW, boot_id="next", mono=5.0, wall=NOW.wall + 300.0)
    assert set_age(NUMBERED, NOW, rebooted).age == 300.0
    assert set_age(NUMBERED, NOW, replace(rebooted, wall=0.0)).age == 0.0
