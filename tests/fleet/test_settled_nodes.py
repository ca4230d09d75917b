"""Tests for nodeguard.fleet.planner: nodes that carry what they should until past charges are forgotten."""

from __future__ import annotations

from nodeguard.model.mark import STATE_ANNOTATION
from tests.fleet.scene import Fleet, finding


def test_past_charges_stay_until_they_are_forgotten() -> None:
    fleet = Fleet(2)
    fleet.report(0, finding())
    fleet.carry_out()
    fleet.report(0)
    fleet.carry_out()
    assert fleet.nodes["uid-0"].annotations[STATE_ANNOTATION]
    fleet.after(86_399.0)
    assert fleet.plan().nodes == ()
    fleet.after(1.0)
    [last] = fleet.plan().nodes
    assert (last.uid, last.state) == ("uid-0", "")
    fleet.mark(last)
    assert fleet.plan().nodes == ()


def test_released_marks_are_forgotten_without_another_change() -> None:
    fleet = Fleet(3)
    fleet.report(1, finding())
    fleet.carry_out()
    fleet.report(1)
    fleet.carry_out()
    for _ in range(3):
        assert fleet.nodes["uid-1"].annotations[STATE_ANNOTATION]
        fleet.after(30_000.0)
        fleet.carry_out()
    assert STATE_ANNOTATION not in fleet.nodes["uid-1"].annotations
