from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeguard.bundle.failures import BundleError
from nodeguard.bundle.kmsg import LogLines, is_record, parse_lines, read_records

LINK_DOWN = (
    "4,1024,5000000,-;mlx5_core 0000:0c:00.0 rdma0: Link down\n SUBSYSTEM=pci\n DEVICE=+pci:0000:0c:00.0"
)
XID = "3,1025,6000000,-,caller=T42;NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."


def test_records_keep_their_continuation_lines() -> None:
    assert read_records(f"{LINK_DOWN}\n{XID}\n".encode(), "kmsg") == (LINK_DOWN, XID)


def test_the_last_newline_may_be_missing_and_a_log_may_be_empty() -> None:
    assert read_records(XID.encode(), "kmsg") == (XID,)
    assert read_records(b"", "kmsg") == ()


def test_invalid_utf_8_is_replaced() -> None:
    assert read_records(b"6,1,1,-;a\xffb\n", "kmsg") == ("6,1,1,-;a�b",)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (" SUBSYSTEM=pci\n", 1),
        (f"{LINK_DOWN}\nNVRM: Xid\n", 4),
        (f"{XID}\n\n{XID}\n", 2),
        (f"{XID}\n[    1.0] text\n", 2),
        ("6,x,1,-;a\n", 1),
        ("6,1,1;a\n", 1),
    ],
)
def test_invalid_record_is_rejected_with_its_line(text: str, line: int) -> None:
    with pytest.raises(BundleError) as refused:
        read_records(text.encode(), "x/kmsg")
    assert str(refused.value).startswith(
        f"x/kmsg: line {line}: is not a record of /dev/kmsg: write it like 6,1024,"
    )


lines = st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]))
records = st.builds(
    lambda prefix, text, more: f"{prefix},7,8,-;{text}" + "".join(f"\n {line}" for line in more),
    st.integers(0, 191),
    lines,
    st.lists(lines, max_size=2),
)


@settings(deadline=None)
@given(st.lists(records))
def test_records_are_read_as_they_were_written(written: list[str]) -> None:
    data = "".join(f"{record}\n" for record in written).encode()
    assert read_records(data, "kmsg") == tuple(written)
    assert all(is_record(record) for record in written)


def test_invalid_records_of_a_growing_log_are_omitted() -> None:
    lines = [b" SUBSYSTEM=gone", b"6,1,1,-;one \xff", b" SUBSYSTEM=pci", b"", b"Xid 79", b"6,2,2,-;two", b"x"]
    parsed = parse_lines(lines, "kmsg", 11)
    assert parsed.records == ("6,1,1,-;one \N{REPLACEMENT CHARACTER}\n SUBSYSTEM=pci", "6,2,2,-;two")
    assert str(parsed.defect).startswith("kmsg: line 15: is not a record of /dev/kmsg: write it like 6,1024,")
    assert parse_lines([], "kmsg", 1) == LogLines()
