from __future__ import annotations

import pytest

from nodeguard.derive.event_decoding import decode_machine_check
from nodeguard.model.observation import Event
from nodeguard.model.signal import Scalar

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
def test_the_status_word_has_the_severity(status: str, wanted: str) -> None:
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
def test_the_words_of_amds_decoder_have_the_severity(words: str, wanted: str) -> None:
    assert severity(words=words) == wanted


def test_a_line_without_status_or_words_has_no_known_severity() -> None:
    assert severity() == "unknown"


def test_a_fatal_error_that_is_logged_at_the_start_is_from_before_it() -> None:
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
