from __future__ import annotations

import errno
from typing import Any

import pytest

from nodeguard.model.target import NODE
from nodeguard.sources.clock import ClockSource
from tests.sources.fake_machine import FakeMachine, ThisMachine, by_target

SOURCE = {"/sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc\n"}
# STA_PLL, kept by chrony.
KEPT = {"status": 0x2001, "offset_us": -1250, "maxerror_us": 7500, "esterror_us": 12, "state": 0}


def test_synchronized_clock() -> None:
    observation = by_target(ClockSource(), FakeMachine(SOURCE, calls={"adjtimex": KEPT}))[NODE]
    assert observation.signals == {
        "clock.synchronized": True,
        "clock.offset": -0.00125,
        "clock.max_error": 0.0075,
        "clock.source": "tsc",
    }


def test_unsynchronized_clock() -> None:
    answer = {**KEPT, "status": 0x40, "state": 5}
    observation = by_target(ClockSource(), FakeMachine(SOURCE, calls={"adjtimex": answer}))[NODE]
    assert observation.signals["clock.synchronized"] is False


def test_refused_adjtimex_does_not_affect_the_clock_source() -> None:
    machine = FakeMachine(SOURCE, errors={"call:adjtimex": errno.EPERM})
    observation = by_target(ClockSource(), machine)[NODE]
    assert observation.signals == {"clock.source": "tsc"}
    assert set(observation.unreadable.values()) == {"permission denied: run as root"}
    assert len(observation.unreadable) == 3


@pytest.mark.parametrize("status", [None, "64", 1.5, [64]])
def test_invalid_clock_state_is_unread(status: Any) -> None:
    machine = FakeMachine(calls={"adjtimex": {**KEPT, "status": status}})
    observation = by_target(ClockSource(), machine)[NODE]
    assert observation.unreadable == {"clock.synchronized": f"adjtimex: status reads {status!r}"}
    assert observation.signals["clock.offset"] == -0.00125


def test_this_machine() -> None:
    assert by_target(ClockSource(), ThisMachine())[NODE].signals["clock.synchronized"] is False
