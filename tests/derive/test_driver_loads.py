from __future__ import annotations

import pytest

from nodeguard.derive.driver_loads import date_loads
from nodeguard.model.observation import Event, Observation, Reading
from nodeguard.model.target import NODE

BEGUN, PROBE_FAILED = "driver.load_begun", "driver.probe_failed"
LOADED, UNLOADED = "driver.load", "driver.unload"
SWITCH_FAILED = "nvswitch.init_failed"


def log(*events: tuple[str, float]) -> Reading:
    return Reading("kmsg", 1000, (Observation("kmsg", NODE, events=tuple(Event(*row) for row in events)),))


def times(reading: Reading) -> list[float]:
    return [event.at for row in reading.observations for event in row.events if event.signal == LOADED]


@pytest.mark.parametrize(
    ("events", "loads"),
    [
        ([(LOADED, 900)], [900]),
        ([(BEGUN, 890), (LOADED, 900)], [890]),
        ([(BEGUN, 890), (PROBE_FAILED, 899), (LOADED, 900)], [890]),
        ([(PROBE_FAILED, 900), (LOADED, 900)], [890]),
        ([(BEGUN, 890), (UNLOADED, 891), (LOADED, 900)], [891]),
        ([(UNLOADED, 891), (BEGUN, 892), (LOADED, 900)], [892]),
        ([(UNLOADED, 200), (LOADED, 900)], [900]),
        ([(BEGUN, 860), (LOADED, 861), (LOADED, 900)], [860, 900]),
        ([(BEGUN, 200), (LOADED, 900)], [900]),
        ([(BEGUN, 200), (PROBE_FAILED, 900), (LOADED, 900)], [890]),
        ([(SWITCH_FAILED, 899), (LOADED, 900)], [889]),
        ([(BEGUN, 895), (SWITCH_FAILED, 899), (LOADED, 900)], [895]),
        ([(SWITCH_FAILED, 700), (UNLOADED, 898), (LOADED, 900)], [898]),
        ([(SWITCH_FAILED, 200), (LOADED, 900)], [900]),
    ],
)
def test_a_load_is_dated_at_its_start(events: list[tuple[str, float]], loads: list[float]) -> None:
    _, (reading,) = date_loads(None, [log(*events)])
    assert times(reading) == loads


def test_the_start_of_a_load_may_be_in_an_earlier_reading() -> None:
    begun_at, _ = date_loads(None, [log((BEGUN, 890))])
    begun_at, (reading,) = date_loads(begun_at, [log((LOADED, 900))])
    assert times(reading) == [890]
    assert begun_at is None
