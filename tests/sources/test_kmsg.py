from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeguard.catalog.tables import load_log_patterns
from nodeguard.model.catalogue import LogPattern
from nodeguard.model.observation import Event, Observation
from nodeguard.model.target import NODE
from nodeguard.sources.kmsg import KmsgSource, LogRecord, join_fragments, parse_records, pattern_signals
from nodeguard.sources.machine import LogRecords
from tests.paths import ROOT
from tests.sources.fake_machine import FakeMachine

PATTERNS = load_log_patterns(ROOT / "checks" / "tables")
XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


class Logging(FakeMachine):
    """A machine with these new records in its kernel log."""

    def __init__(self, *records: str, lost: int = 0) -> None:
        super().__init__()
        self.new = LogRecords(records, lost)

    def log(self, within: float = math.inf) -> LogRecords:
        new, self.new = self.new, LogRecords(())
        return new


def line(text: str, at: float = 5.0, *, prefix: int = 3, flags: str = "-", more: str = "") -> str:
    """A record as /dev/kmsg gives it."""
    return f"{prefix},17,{at * 1e6:.0f},{flags}{more};{text}\n"


def read(*records: str, patterns: tuple[LogPattern, ...] = PATTERNS, lost: int = 0) -> list[Observation]:
    return list(KmsgSource(patterns).read(Logging(*records, lost=lost)))


def one(record: str) -> tuple[str, Event]:
    """Slot and event of a record that becomes exactly one."""
    [observation] = read(record)
    [event] = observation.events
    return observation.target, event


def pattern(
    name: str, hint: str, *, signal: str = "a.happened", target: str = "node", text: str = ""
) -> LogPattern:
    return LogPattern(name, hint, text or hint, signal, target, "about")


def test_partly_read_log_is_reported_as_unread() -> None:
    machine = Logging()
    machine.new = LogRecords((line(XID),), lost=3, more=True)
    node, gpu = KmsgSource(PATTERNS).read(machine)
    assert (node.target, node.status, node.count, len(node.events)) == (NODE, "failed", 3, 1)
    assert node.detail.startswith("only the oldest 1 records were read: ")
    assert gpu.events[0].fields["xid"] == 79


# Which records count.


def test_line_becomes_an_event_of_its_target() -> None:
    target, event = one(line(XID, at=12.345678))
    assert (target, event.signal, event.at, event.text) == ("gpu/0000:3b:00", "gpu.xid.line", 12.345678, XID)
    assert (event.fields["xid"], event.fields["pci"], event.count) == (79, "0000:3b:00", 1)


@pytest.mark.parametrize("facility", [1, 3, 10, 23])
def test_log_lines_of_processes_are_ignored(facility: int) -> None:
    assert read(line(XID, prefix=facility * 8 + 3)) == []


def test_a_prefix_may_have_more_fields() -> None:
    assert one(line(XID, more=",caller=T12"))[0] == "gpu/0000:3b:00"


def test_continuation_lines_are_part_of_the_record_but_not_of_its_text() -> None:
    link_down = "mlx5_core 0000:0c:00.0: Fatal error 1 detected"
    target, event = one(line(f"{link_down}\n SUBSYSTEM=pci\n DEVICE=+pci:0000:0c:00.0"))
    assert (target, event.text) == ("pci/0000:0c:00.0", link_down)
    assert read(line(f"usb 1-1: new device\n MODEL={XID}\n{XID}")) == []


def test_one_record_of_several_lines_is_matched_whole() -> None:
    text = (
        r"NVRM: The NVIDIA GPU 0000:18:00.0\x0aNVRM: (PCI ID: 10de:2901) installed in this system has"
        r"\x0aNVRM: fallen off the bus and is not responding to commands."
    )
    target, event = one(line(text))
    assert (target, event.signal) == ("gpu/0000:18:00", "gpu.fell_off")
    assert event.text.count("\n") == 2


def test_escapes_represent_bytes() -> None:
    [record] = parse_records([line(r"caf\xc3\xa9 \x5cx41 \xff 100\x")])
    assert record.text == "café \\x41 \ufffd 100\\x"


@pytest.mark.parametrize(
    "raw",
    [
        "",
        ";",
        "3,1,5",
        "3,1;text",
        "x,1,5,-;text",
        "3,1,x,-;text",
        "-3,1,5,-;text",
        "²,1,5,-;text",
        f"{'9' * 5000},1,5,-;t",
    ],
)
def test_invalid_records_are_omitted(raw: str) -> None:
    assert list(parse_records([raw])) == []


@given(st.lists(st.text() | st.from_regex(r"\A[0-9]{0,3},[0-9]*,[0-9]*,[-c+](,\w+=\w+)?;.*", fullmatch=True)))
def test_parsing_never_raises_and_returns_only_kernel_records(records: list[str]) -> None:
    accepted = list(parse_records(records))
    kernel = [raw for raw in records if raw.partition(",")[0].isdecimal() and int(raw.partition(",")[0]) < 8]
    assert len(accepted) <= len(kernel)


@given(st.lists(st.tuples(st.integers(0, 191), st.text(st.characters(exclude_characters="\n\\")))))
def test_only_the_facility_decides_on_a_complete_record(records: list[tuple[int, str]]) -> None:
    accepted = [
        record.text for record in parse_records(line(text, prefix=prefix) for prefix, text in records)
    ]
    assert accepted == [text for prefix, text in records if prefix < 8]


# Fragments of one line.


def test_fragments_of_one_caller_are_joined_into_one_line() -> None:
    records = (
        line(XID[:30], at=1.0, more=",caller=T5"),
        line("mce: [Hardware Error]: else", at=1.5, more=",caller=C3"),
        line(XID[30:], at=2.0, flags="c", more=",caller=T5"),
        line("a fragment of no message", at=3.0, flags="c", more=",caller=T9"),
    )
    events = {observation.target: observation.events for observation in read(*records)}
    assert [(event.text, event.at) for event in events["gpu/0000:3b:00"]] == [(XID, 1.0)]
    assert [record.text for record in join_fragments(parse_records(records))] == [XID, *(
        "mce: [Hardware Error]: else", "a fragment of no message",
    )]  # fmt: skip


@pytest.mark.parametrize("more", ["", ",caller=T5"])
def test_driver_lines_are_lines_though_all_are_logged_as_fragments(more: str) -> None:
    texts = (
        "NVRM: GPU at PCI:0000:3b:00: GPU-25fa69ed-5cc1-1d96-a566-4259e8a69d82",
        "NVRM: GPU Board Serial Number: 1654024198296",
        "NVRM: Xid (PCI:0000:3b:00): 31, pid=579, name=python3, channel 0x0000001e",
        XID,
    )
    records = [line(text, at=float(at), flags="c", more=more) for at, text in enumerate(texts, 1)]
    assert [record.text for record in join_fragments(parse_records(records))] == list(texts)
    [*events] = (event for observation in read(*records) for event in observation.events)
    assert [event.fields["xid"] for event in events if event.signal == "gpu.xid.line"] == [31, 79]


@pytest.mark.parametrize("flags", ["c", "+"])
def test_fragment_without_a_caller_continues_the_line_before_it(flags: str) -> None:
    first, second = XID[:30], XID[30:]
    [observation] = read(
        line("one"), line(first, at=1.0), line(second, at=2.0, flags=flags), line("else", at=3.0)
    )
    assert [(event.text, event.at) for event in observation.events] == [(XID, 1.0)]


def test_joined_line_has_a_maximum_length() -> None:
    [record] = join_fragments(LogRecord(1.0, "x" * 100, fragment=True) for _ in range(100_000))
    assert len(record.text) == 32 << 10


RECORDS = st.lists(
    st.builds(
        LogRecord, st.floats(0, 1e6), st.text(max_size=5), st.booleans(), st.sampled_from(["", "T1", "C2"])
    )
)


@given(RECORDS)
def test_joining_fragments_keeps_all_text_and_the_order_of_each_caller(records: list[LogRecord]) -> None:
    joined = join_fragments(records)
    assert sorted("".join(record.text for record in joined)) == sorted(
        "".join(record.text for record in records)
    )
    for caller in ("T1", "C2"):
        joined_text = "".join(record.text for record in records if record.caller == caller)
        if not any(record.fragment and not record.caller for record in records):
            assert "".join(record.text for record in joined if record.caller == caller) == joined_text
    assert len(joined) >= sum(not record.fragment for record in records)


# Slots.


@pytest.mark.parametrize(
    ("place", "target", "fields"),
    [
        ("PCI:0000:9d:00", "gpu/0000:9d:00", {}),
        ("PCI:00000000:9D:00", "gpu/0000:9d:00", {}),
        ("0000:9d:00.0", "gpu/0000:9d:00", {}),
        ("PCI:0018:01:00", "gpu/0018:01:00", {}),
        ("PCI:10000:01:00", "gpu/10000:01:00", {}),
        ("PCI:0000:9d:00 GPU-I:05", "gpu/0000:9d:00", {"gi": 5}),
        ("PCI:0000:9d:00 GPU-I:05 GPU-CI:00", "gpu/0000:9d:00", {"gi": 5, "ci": 0}),
    ],
)
def test_xid_is_attributed_for_every_address_format(place: str, target: str, fields: dict[str, int]) -> None:
    observation, event = one(
        line(f"NVRM: Xid ({place}): 94, pid=7194, name=python, Contained: SM (0x1,0x0).")
    )
    assert observation == target
    assert {name: event.fields.get(name) for name in ("gi", "ci") if name in event.fields} == fields


@pytest.mark.parametrize(
    ("kind", "text", "target"),
    [
        ("gpu", "x 0000:3B:00.0", "gpu/0000:3b:00"),
        ("nvswitch", "x 00000000:c1:00.0", "nvswitch/0000:c1:00"),
        ("pci", "x 0000:9c:00", "pci/0000:9c:00.0"),
        ("pci", "x 0000:9c:00.1", "pci/0000:9c:00.1"),
        ("gpu", "x nowhere", NODE),
        ("port", "x 0000:9c:00", NODE),
        ("node", "x 0000:9c:00", NODE),
    ],
)
def test_target_is_made_from_a_pci_address(kind: str, text: str, target: str) -> None:
    wanted = pattern("a", "x ", target=kind, text=r"x (?P<pci>\S+)")
    assert [observation.target for observation in read(line(text), patterns=(wanted,))] == [target]


@pytest.mark.parametrize(
    ("kind", "target"), [("port", "port/mlx5_0/1"), ("disk", "disk/mlx5_0"), ("gpu", NODE), ("dimm", NODE)]
)
def test_target_is_made_from_a_device_name(kind: str, target: str) -> None:
    wanted = pattern("a", "x ", target=kind, text=r"x (?P<dev>\S+)(?P<pci>absent)?")
    [observation] = read(line("x mlx5_0"), patterns=(wanted,))
    assert observation.target == target
    assert observation.events[0].fields == {"dev": "mlx5_0"}


def test_only_short_decimal_fields_become_numbers() -> None:
    wanted = pattern("a", "x ", text=r"x (?P<dev>\S+) (?P<n>\S+) (?P<hex>\S+) (?P<long>\S+)")
    [observation] = read(line(f"x 12 034 0x5 {'9' * 30}"), patterns=(wanted,))
    assert observation.events[0].fields == {"dev": "12", "n": 34, "hex": "0x5", "long": "9" * 30}


# Patterns.


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        (
            "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),task_memcg=/kubepods/x/y,task=a,pid=1,b,pid=1883,uid=0",
            {"cgroup": "/kubepods/x/y", "process": "a,pid=1,b", "pid": 1883},
        ),
        ("oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null)", {}),
        (
            "Out of memory: Kill process 21883 (py (x)) score 998 or sacrifice child",
            {"process": "py (x)", "pid": 21883},
        ),
        (
            "pt_main_thread[253]: segfault at 7f ip 00 sp 00 error 4 in libnccl.so.2[7f+d3]",
            {"process": "pt_main_thread", "pid": 253},
        ),
    ],
)
def test_a_line_names_its_process(text: str, fields: dict[str, object]) -> None:
    found = one(line(text))[1].fields
    assert {name: found[name] for name in ("cgroup", "process", "pid") if name in found} == fields


def test_first_matching_pattern_determines_the_event() -> None:
    first, second = pattern("one", "down", signal="a.first"), pattern("two", "down", signal="a.second")
    for patterns in ((first, second), (second, first)):
        [observation] = read(line("down"), patterns=patterns)
        assert [event.signal for event in observation.events] == [patterns[0].signal]


def test_later_pattern_is_used_if_an_earlier_one_does_not_match() -> None:
    near, right = pattern("one", "down", signal="a.first", text="up or down"), pattern("two", "down")
    [observation] = read(line("down"), patterns=(near, right))
    assert observation.events[0].signal == "a.happened"


def test_pattern_without_a_signal_hides_the_line_from_later_patterns() -> None:
    silent, loud = pattern("one", "SXid detail", signal=""), pattern("two", "SXid")
    assert read(line("SXid detail"), patterns=(silent, loud)) == []


def test_pattern_matches_only_at_the_beginning_of_the_line() -> None:
    assert read(line(f"python3: {XID}")) == []


def test_regular_expression_runs_only_if_the_hint_matches() -> None:
    broken = pattern("one", "never logged", text="(")
    assert read(line("usb 1-1: new device"), patterns=(broken,)) == []


def test_each_signal_has_the_fields_of_all_its_patterns() -> None:
    first = pattern("one", "a", text=r"a (?P<x>.)(?P<y>.)")
    second = pattern("two", "b", text=r"b (?P<y>.)(?P<z>.)")
    silent = pattern("three", "c", signal="")
    signals = pattern_signals((first, second, silent))
    assert set(signals) == {"kmsg.sequence", "kmsg.lost", "a.happened"}
    assert (signals["a.happened"].kind, signals["a.happened"].fields) == ("event", ("x", "y", "z"))
    assert KmsgSource((first, second, silent)).signals == signals


# Counts.


# Floods and losses.
