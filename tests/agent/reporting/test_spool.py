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
    Spool,
    append,
    decode_entry,
    encode_entry,
    remove,
    set_age,
)
from nodeguard.wire.encoding import EncodingError
from nodeguard.wire.report import VERSION
from nodeguard.wire.report_builder import build_report
from tests.wire.scene import FACTS, NOW, finding, verdict

FAULTY = build_report(verdict(finding()), NOW, FACTS, 7)
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
    assert decode_entry(encode_entry(FAULTY, NOW)) == (FAULTY, NOW)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_an_entry_of_another_version_is_sent_as_this_one(version: int) -> None:
    entry = msgspec.json.encode(
        {"at": NOW, "report": Raw((EXAMPLES / f"report-{version}.json").read_bytes())}
    )
    report, at = decode_entry(entry)
    assert (report.version, report.sequence, at) == (VERSION, 5000123, NOW)


@pytest.mark.parametrize("data", [b"", b"{}", b"[" * 99_999, b'{"at": 1}', b"\xff"])
def test_an_invalid_entry_is_refused(data: bytes) -> None:
    with pytest.raises(EncodingError, match="skipped"):
        decode_entry(data)


def test_the_age_grows_while_an_entry_waits() -> None:
    later = replace(NOW, mono=NOW.mono + 60.0, wall=NOW.wall - 9e6)
    assert set_age(FAULTY, NOW, later).age == 60.0
    rebooted = replace(NOW, boot_id="next", mono=5.0, wall=NOW.wall + 300.0)
    assert set_age(FAULTY, NOW, rebooted).age == 300.0
    assert set_age(FAULTY, NOW, replace(rebooted, wall=0.0)).age == 0.0
