from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import FrameType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeguard.derive.event_decoding import decode_events, decode_machine_check
from nodeguard.derive.event_dedup import DedupState, deduplicate_xids
from nodeguard.derive.state import DeriveState
from nodeguard.model.observation import Event, Observation, Reading
from nodeguard.model.signal import Scalar
from tests.derive.readings import GPUS, tables, xid

RECOVERY = "pid='<unknown>', name=<unknown>, GPU recovery action changed from 0x{} (x) to 0x{} (y)"


def log(*events: Event, target: str = GPUS[0]) -> Reading:
    return Reading("kmsg", 100, (Observation("kmsg", target, events=events),))


def decode(state: DeriveState, *readings: Reading) -> tuple[DeriveState, list[Event]]:
    state, result = decode_events(state, readings, tables(), 580)
    return state, [
        event for reading in result for observation in reading.observations for event in observation.events
    ]


def decoded(events: Sequence[Event]) -> list[tuple[str, object, int]]:
    return [(event.signal, event.fields.get("response"), event.count) for event in events]


def test_lines_become_events() -> None:
    line = Event("nvswitch.sxid.line", 99, "text", {"sxid": 20034, "sev": "Fatal", "msg": "LTSSM Fault Up"})
    _, events = decode(DeriveState(), log(xid(79), line, Event("gpu.fell_off", 99)))
    assert [event.signal for event in events] == ["gpu.xid.lost", "nvswitch.sxid", "gpu.fell_off"]


def test_a_machine_check_is_decoded() -> None:
    line = Event("cpu.machine_check.line", 900, "text", {"cpu": 6, "status": "be00000000800400"})
    _, [event] = decode(DeriveState(), log(line, target="node"))
    assert (event.signal, event.fields["severity"]) == ("cpu.machine_check", "fatal")


def test_xids_of_one_round_are_decoded_together() -> None:
    _, events = decode(DeriveState(), log(xid(48, at=99), xid(63, at=99.5)))
    assert decoded(events) == [("gpu.xid.ecc", "DRAIN_AND_RESET", 1), ("gpu.xid.repair", "IGNORE", 1)]


def test_earlier_line_is_reported_again_when_a_later_one_changes_its_meaning() -> None:
    state, events = decode(DeriveState(), log(xid(48, at=90)))
    assert decoded(events) == [("gpu.xid.ecc", "RESET_GPU", 1)]
    state, events = decode(state, log(xid(63, at=95)))
    assert ("gpu.xid.ecc", "DRAIN_AND_RESET", 0) in decoded(events)
    _, events = decode(state, log(xid(63, at=97)))
    assert [event.signal for event in events] == ["gpu.xid.repair"]


def test_line_is_reported_again_by_its_source() -> None:
    line = Reading("nvml", 90, (Observation("nvml", GPUS[0], events=(xid(48, at=90),)),))
    state, _ = decode_events(DeriveState(), [line], tables(), 580)
    _, result = decode_events(state, [log(xid(63, at=95))], tables(), 580)
    sources = {
        observation.source
        for reading in result
        for observation in reading.observations
        if any(event.count == 0 for event in observation.events)
    }
    assert sources == {"nvml"}


def test_bare_code_is_dropped_beside_its_message_in_either_order() -> None:
    words = "NETIR_LINK_EVT  Fatal   XC0 i1 Link 02 (0x00400011 0x00000000)"
    bare, line = xid(149, "", at=90), xid(149, words, at=95)
    nvml = Reading("nvml", 90, (Observation("nvml", GPUS[0], events=(bare,)),))
    state, events = decode(DeriveState(), nvml)
    assert [event.fields["reported_by_log"] for event in events] == [False]
    _, events = decode(state, log(line))
    assert [(event.fields["verdict"], event.fields["reported_by_log"]) for event in events] == [
        ("warning", True),
        ("injected", False),
    ]
    _, events = decode(decode(DeriveState(), log(line))[0], nvml)
    assert [event.fields["reported_by_log"] for event in events] == [True]


def test_old_line_is_not_decoded_again() -> None:
    state, _ = decode(DeriveState(), log(xid(48, at=30)))
    _, events = decode(state, log(xid(63, at=95)))
    assert [event.signal for event in events] == ["gpu.xid.repair"]


def test_xid_of_one_gpu_does_not_affect_another() -> None:
    state, _ = decode(DeriveState(), log(xid(48, at=90)))
    _, events = decode(state, log(xid(63, at=95), target=GPUS[1]))
    assert [event.signal for event in events] == ["gpu.xid.repair"]


def test_end_of_a_switch_temperature_alarm_is_a_sign() -> None:
    line = Event("nvswitch.sxid.line", 90, fields={"sxid": 10005, "msg": "Host Thermal Event End"})
    _, events = decode(DeriveState(), log(line, target="nvswitch/0000:07:00"))
    assert [event.signal for event in events] == ["nvswitch.sxid", "nvswitch.cool"]


def test_xid_154_without_a_required_action_is_a_sign() -> None:
    _, events = decode(DeriveState(), log(xid(154, RECOVERY.format(1, 0))))
    assert [event.signal for event in events] == ["gpu.xid.recovery", "gpu.recovery_none"]
    _, events = decode(DeriveState(), log(xid(154, RECOVERY.format(0, 1))))
    assert [event.signal for event in events] == ["gpu.xid.recovery"]


def test_reading_without_events_is_unchanged() -> None:
    quiet = Reading("nvml", 100, (Observation("nvml", GPUS[0], signals={"a": 1}),))
    state, [same] = decode_events(DeriveState(), [quiet], tables(), 580)
    assert (state, same) == (DeriveState(), quiet)


@given(codes=st.lists(st.sampled_from([13, 31, 45, 48, 63, 94, 154]), min_size=1, max_size=120))
def test_storm_has_bounded_memory_and_counts_every_line(codes: list[int]) -> None:
    state = DeriveState()
    counted = 0
    for number, code in enumerate(codes):
        state, events = decode(state, log(xid(code, at=100.0 + number)))
        counted += sum(event.count for event in events if event.signal.startswith("gpu.xid."))
    assert counted == len(codes)
    assert all(len(rows) <= 32 for rows in (*state.lines.values(), *state.xids.values()))


def count_calls(work: Callable[[], object]) -> int:
    """Return how many functions, of Python and of C, some work calls."""
    count = 0

    def counted(frame: FrameType, text: str, _: object) -> None:
        nonlocal count
        count += text in {"call", "c_call"}

    sys.setprofile(counted)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def storm(number: int) -> list[Reading]:
    """One reading with so many Xids of one GPU within a minute, of every kind that others explain."""
    codes = (45, 48, 63, 13, 145, 154, 94)
    rest = {
        154: RECOVERY.format(0, 1),
        145: "RLW_REMAP Nonfatal XC0 i0 Link 08 (0x00000004 0x00000001 0x00000000)",
    }
    events = [
        xid(codes[place % 7], rest.get(codes[place % 7], ""), at=100.0 + 60.0 * place / number)
        for place in range(number)
    ]
    return [log(*events[start : start + 64]) for start in range(0, number, 64)]


def test_decoding_time_is_linear_in_the_number_of_xids() -> None:
    def work(number: int) -> int:
        readings = storm(number)
        latest = {"kmsg": readings[-1]}
        return count_calls(
            lambda: decode(DeriveState(), *deduplicate_xids(DedupState(), readings, latest, 170.0)[1])
        )

    assert work(2000) < 4.4 * work(500)


def test_a_storm_of_one_code_leaves_another_code_in_memory() -> None:
    state, _ = decode(DeriveState(), log(xid(48, at=100.0)))
    state, _ = decode(state, log(*(xid(13, at=101.0 + number / 100) for number in range(200))))
    _, events = decode(state, log(xid(63, at=110.0), xid(45, at=110.0)))
    assert [event.fields["detail"] for event in events if event.fields.get("xid") == 45] == [
        " (follows Xid 48)"
    ]


HOUR = 3600.0


def severity(at: float = HOUR, **fields: Scalar) -> Scalar:
    event = decode_machine_check(Event("cpu.machine_check.line", at, "text", fields))
    assert (event.signal, event.at, event.text) == ("cpu.machine_check", at, "text")
    return event.fields["severity"]


@pytest.mark.parametrize(
    ("status", "wanted"),
    [
        ("8c00004000010093", "corrected"),
        ("9c20c0000801009f", "corrected"),
        ("bd80000000100134", "uncorrected"),
        ("bd000000000c0150", "uncorrected"),
        ("be00000000800400", "fatal"),
        ("bea0000000000108", "fatal"),
        ("fe200000000b110a", "fatal"),
        ("0000000000000000", "unknown"),
        ("3e00000000800400", "unknown"),
        ("be0000", "unknown"),
        ("not a number at all", "unknown"),
    ],
)
def test_severity_is_decoded_from_the_status_register(status: str, wanted: str) -> None:
    assert severity(status=status) == wanted


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("System Fatal error", "fatal"),
        ("Uncorrected, software restartable error", "uncorrected"),
        ("Uncorrected, software containable error", "uncorrected"),
        ("Deferred error, no action required", "deferred"),
        ("Corrected error, no action required", "corrected"),
        ("Another error", "unknown"),
    ],
)
def test_severity_is_decoded_from_the_amd_text(words: str, wanted: str) -> None:
    assert severity(words=words) == wanted


def test_severity_is_unknown_without_status_and_text() -> None:
    assert severity() == "unknown"


def test_fatal_machine_check_logged_during_boot_is_from_before_the_boot() -> None:
    assert severity(at=4.2, status="bea0000000000108") == "before_boot"
    assert severity(at=4.2, words="System Fatal error") == "before_boot"
    assert severity(at=4.2, status="be00000000800400", exception=" Exception") == "fatal"
    assert severity(at=4.2, status="bd80000000100134") == "uncorrected"


def test_other_fields_are_kept() -> None:
    event = Event(
        "cpu.machine_check.line", HOUR, "text", {"cpu": 3, "bank": 7, "status": "8c00004000010093"}, 5
    )
    remaining = decode_machine_check(event)
    assert (remaining.fields["cpu"], remaining.fields["bank"], remaining.count) == (3, 7, 5)
