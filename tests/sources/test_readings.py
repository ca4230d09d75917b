from __future__ import annotations

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeguard.model.failure import StalledError
from nodeguard.model.slot import NODE
from nodeguard.sources.readings import Draft, attempt, count, number, reason, senseless, word
from tests.sources.fake_machine import FakeMachine


def _draft(machine: FakeMachine) -> Draft:
    return Draft(machine, "host", NODE)


def test_a_value_becomes_a_signal() -> None:
    draft = _draft(FakeMachine({"/a": " 12\n"}))
    assert draft.take("a", "/a", count) == 12
    assert draft.observation().signals == {"a": 12}


def test_what_is_absent_leaves_no_trace() -> None:
    draft = _draft(FakeMachine(errors={"/gone": errno.ENODEV}))
    assert draft.take("a", "/gone", count) is None
    assert draft.take("b", "/never", count) is None
    assert draft.names("/never", "c") is None
    assert draft.link("/never", "d") is None
    assert (draft.signals, draft.unread) == ({}, {})


def test_garbage_is_unread_and_says_what_it_says() -> None:
    draft = _draft(FakeMachine({"/sys/a": "xyz\n"}))
    assert draft.take("a", "/sys/a", count) is None
    assert draft.unread == {"a": "/sys/a says 'xyz'"}


def test_long_garbage_is_cut() -> None:
    assert len(senseless("/a", "x" * 100_000)) < 80


def test_a_refusal_is_unread_for_every_signal_of_the_file() -> None:
    draft = _draft(FakeMachine(errors={"/a": errno.EACCES, "/d": errno.EIO}))
    assert draft.text("/a", "a", "b") is None
    assert draft.names("/d", "c") is None
    denied = "permission denied: run as root"
    assert draft.unread == {"a": denied, "b": denied, "c": "Input/output error (EIO)"}


def test_a_directory_in_a_link_s_place_is_no_link() -> None:
    draft = _draft(FakeMachine(errors={"/l": errno.EINVAL, "/m": errno.EPERM}, links={"/k": "../x/y"}))
    assert draft.link("/l", "a") is None
    assert draft.link("/m", "b") is None
    assert draft.link("/k", "c") == "../x/y"
    assert draft.unread == {"b": "permission denied: run as root"}


def test_silence_passes() -> None:
    with pytest.raises(StalledError):
        _draft(FakeMachine(errors={"/a": StalledError("/a")})).text("/a", "a")


def test_an_error_without_a_known_number_has_a_reason() -> None:
    assert "9999" in reason(OSError(9999, "?"))
    assert reason(OSError("odd"))


def test_attempt_tells_absent_from_refused() -> None:
    machine = FakeMachine(errors={"/a": errno.EINVAL, "/b": errno.ESRCH})
    refused = attempt(machine.read, "/a")
    assert isinstance(refused, OSError)
    assert refused.errno == errno.EINVAL
    assert attempt(machine.read, "/b") is None


@given(st.integers(min_value=0, max_value=2**64 - 1))
def test_count_reads_what_the_kernel_prints(value: int) -> None:
    assert count(str(value)) == count(hex(value), 16) == value


@pytest.mark.parametrize("text", ["", "-1", "1.5", "0x10", str(2**64), "9" * 5000, "N/A"])
def test_count_refuses(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  (whoever catches it quotes the text)
        count(text)


@pytest.mark.parametrize("text", ["", "-0.5", "nan", "inf", "x"])
def test_number_refuses(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        number(text)


def test_word_is_one_printable_line() -> None:
    assert word("NVIDIA DGX H100") == "NVIDIA DGX H100"
    assert word("") is None
    for text in ("two\nlines", "bell\a", "x" * 300):
        with pytest.raises(ValueError, match=r".*"):
            word(text)
