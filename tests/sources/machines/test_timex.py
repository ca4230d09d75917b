from __future__ import annotations

import ctypes
import errno
from typing import Any

import pytest

from nodeguard.sources.machines.live import adjtimex


class Kernel:
    """A C library with an adjtimex that fills its struct. state: its result. code: the errno that it sets."""

    def __init__(self, state: int = 0, code: int = 0, **fields: int) -> None:
        self.state, self.code, self.fields = state, code, fields

    def adjtimex(self, reference: Any) -> int:
        assert reference._obj.modes == 0, "nothing is to be set"
        for name, number in self.fields.items():
            setattr(reference._obj, name, number)
        ctypes.set_errno(self.code)
        return self.state


def answer(monkeypatch: pytest.MonkeyPatch, kernel: Kernel) -> dict[str, int]:
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: kernel)
    return adjtimex()


def test_this_machine_answers() -> None:
    try:
        result = adjtimex()
    except OSError as error:
        pytest.skip(f"adjtimex is refused here: {error}")
    assert set(result) == {"status", "offset_us", "maxerror_us", "esterror_us", "state"}
    assert 0 <= result["state"] <= 5
    assert 0 <= result["status"] < 1 << 16
    # Linux NTP_PHASE_LIMIT.
    assert 0 <= result["maxerror_us"] <= 16_000_000
    assert abs(result["offset_us"]) <= 500_000


def test_microseconds_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    result = answer(monkeypatch, Kernel(5, status=0x40, offset=-1500, maxerror=16_000_000, esterror=3))
    assert result == {
        "status": 0x40,
        "offset_us": -1500,
        "maxerror_us": 16_000_000,
        "esterror_us": 3,
        "state": 5,
    }


def test_an_offset_in_nanoseconds_is_turned_into_microseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    assert answer(monkeypatch, Kernel(status=0x2001, offset=1_500_000))["offset_us"] == 1500


def test_a_refusal_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PermissionError) as refused:
        answer(monkeypatch, Kernel(-1, errno.EPERM))
    assert refused.value.filename == "adjtimex"
