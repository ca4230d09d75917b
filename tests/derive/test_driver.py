from __future__ import annotations

import pytest

from nodeguard.derive.host import driver_branch, driver_changing_derivation, last_driver_change
from nodeguard.model.observation import Event, Observation
from nodeguard.model.signal import Scalar
from tests.derive.look import derived, machine, seen, unread

OLD: dict[str, Scalar] = {"host.uptime": 90_000.0, "driver.module_state": "live"}


@pytest.mark.parametrize(
    ("signals", "moved", "changes"),
    [
        (OLD, None, False),
        ({**OLD, "host.uptime": 599.0}, None, True),
        ({**OLD, "host.uptime": 600.0}, None, False),
        ({**OLD, "driver.module_state": "coming"}, None, True),
        ({**OLD, "driver.module_state": "going"}, None, True),
        (OLD, 90_000.0 - 599, True),
        (OLD, 90_000.0 - 600, False),
        ({}, None, False),
    ],
)
def test_a_driver_is_given_time_to_come_up(
    signals: dict[str, Scalar], moved: float | None, changes: bool
) -> None:
    look = machine(seen("host", "node", signals), at=90_000.0)
    assert derived(look, driver_changing_derivation(moved)) == {"node": {"driver.changing": changes}}


def test_a_machine_of_unknown_age_may_have_just_booted() -> None:
    host = Observation(
        "host", "node", signals={"driver.module_state": "live"}, unreadable={"host.uptime": "refused"}
    )
    assert unread(machine(host), driver_changing_derivation(None)) == {"node": {"driver.changing": "refused"}}
    assert derived(machine(host), driver_changing_derivation(99.0)) == {"node": {"driver.changing": True}}


def test_the_last_move_is_the_latest_that_was_heard_of() -> None:
    events = [Event("driver.load", 30), Event("driver.unload", 40), Event("a.happened", 90)]
    assert last_driver_change(None, events) == 40
    assert last_driver_change(50, events) == 50
    assert last_driver_change(50, ()) == 50
    assert last_driver_change(None, [Event("a.happened", 90)]) is None


@pytest.mark.parametrize(
    ("signals", "number"),
    [
        ({"driver.version": "580.95.05"}, 580),
        ({"nvml.driver_version": "570.86.15"}, 570),
        ({"driver.version": "580.95.05", "nvml.driver_version": "570.86.15"}, 580),
        ({"driver.version": "unknown"}, None),
        ({}, None),
    ],
)
def test_the_branch_is_the_first_number_of_the_version(
    signals: dict[str, Scalar], number: int | None
) -> None:
    assert driver_branch(machine(seen("host", "node", signals))) == number
