from __future__ import annotations

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeguard.model.failure import StalledError
from nodeguard.model.target import NODE
from nodeguard.sources.readings import (
    ObservationDraft,
    failure_reason,
    implausible,
    parse_count,
    parse_counter,
    parse_line,
    parse_narrow_counter,
    parse_number,
    try_read,
)
from tests.sources.fake_machine import FakeMachine


@pytest.mark.parametrize("bits", [16, 31, 32, 63, 64])
def test_a_counter_with_all_bits_set_is_no_value(bits: int) -> None:
    assert parse_counter(str((1 << bits) - 2)) == (1 << bits) - 2
    with pytest.raises(ValueError, match=str((1 << bits) - 1)):
        parse_counter(str((1 << bits) - 1))


def test_a_narrow_counter_has_no_value_above_its_bits() -> None:
    assert parse_narrow_counter(8)("255") == 255
    with pytest.raises(ValueError, match="256"):
        parse_narrow_counter(8)("256")


def _draft(machine: FakeMachine) -> ObservationDraft:
    return ObservationDraft(machine, "host", NODE)


def test_a_value_becomes_a_signal() -> None:
    draft = _draft(FakeMachine({"/a": " 12\n"}))
    assert draft.read("a", "/a", parse_count) == 12
    assert draft.build().signals == {"a": 12}


def test_absent_file_adds_no_signal() -> None:
    draft = _draft(FakeMachine(errors={"/gone": errno.ENODEV}))
    assert draft.read("a", "/gone", parse_count) is None
    assert draft.read("b", "/never", parse_count) is None
    assert draft.list_names("/never", "c") is None
    assert draft.read_link("/never", "d") is None
    assert (draft.signals, draft.unread) == ({}, {})


def test_invalid_text_is_unread_and_quoted_in_the_reason() -> None:
    draft = _draft(FakeMachine({"/sys/a": "xyz\n"}))
    assert draft.read("a", "/sys/a", parse_count) is None
    assert draft.unread == {"a": "/sys/a reads 'xyz'"}


def test_long_garbage_is_cut() -> None:
    assert len(implausible("/a", "x" * 100_000)) < 80


def test_a_refusal_is_unread_for_every_signal_of_the_file() -> None:
    draft = _draft(FakeMachine(errors={"/a": errno.EACCES, "/d": errno.EIO}))
    assert draft.read_text("/a", "a", "b") is None
    assert draft.list_names("/d", "c") is None
    denied = "permission denied: run as root"
    assert draft.unread == {"a": denied, "b": denied, "c": "Input/output error (EIO)"}


def test_directory_instead_of_a_link_is_rejected() -> None:
    draft = _draft(FakeMachine(errors={"/l": errno.EINVAL, "/m": errno.EPERM}, links={"/k": "../x/y"}))
    assert draft.read_link("/l", "a") is None
    assert draft.read_link("/m", "b") is None
    assert draft.read_link("/k", "c") == "../x/y"
    assert draft.unread == {"b": "permission denied: run as root"}


def test_stalled_read_is_raised_to_the_caller() -> None:
    with pytest.raises(StalledError):
        _draft(FakeMachine(errors={"/a": StalledError("/a")})).read_text("/a", "a")


def test_an_error_without_a_known_number_has_a_reason() -> None:
    assert "9999" in failure_reason(OSError(9999, "?"))
    assert failure_reason(OSError("odd"))


def test_try_read_returns_none_for_absent_and_the_error_for_refused() -> None:
    machine = FakeMachine(errors={"/a": errno.EINVAL, "/b": errno.ESRCH})
    refused = try_read(machine.read, "/a")
    assert isinstance(refused, OSError)
    assert refused.errno == errno.EINVAL
    assert try_read(machine.read, "/b") is None


@given(st.integers(min_value=0, max_value=2**64 - 1))
def test_count_reads_what_the_kernel_prints(value: int) -> None:
    assert parse_count(str(value)) == parse_count(hex(value), 16) == value


@pytest.mark.parametrize("text", ["", "-1", "1.5", "0x10", str(2**64), "9" * 5000, "N/A"])
def test_count_refuses(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  (whoever catches it quotes the text)
        parse_count(text)


@pytest.mark.parametrize("text", ["", "-0.5", "nan", "inf", "x"])
def test_number_refuses(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        parse_number(text)


def test_parse_line_accepts_one_printable_line() -> None:
    assert parse_line("NVIDIA DGX H100") == "NVIDIA DGX H100"
    assert parse_line("") is None
    for text in ("two\nlines", "bell\a", "x" * 300):
        with pytest.raises(ValueError, match=r".*"):
            parse_line(text)
