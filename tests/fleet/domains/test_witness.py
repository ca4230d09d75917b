"""What the diagnosis is told of the places of nodes."""

from __future__ import annotations

from nodeguard.model.policy import View
from tests.fleet.scene import Fleet


def test_all_that_move_at_once_are_known_where_they_are_from_the_next_look_on() -> None:
    made = Fleet(0)
    for number in range(4):
        made.add(number, labels={"block": f"b{number // 2}"})
    made.after(1.0)
    diagnosis = made.planner.diagnosis
    assert set(diagnosis.members.domains()) == set()
    made.planner.roster.topologies((View("fabric", ("block",)),))
    made.after(1.0)
    assert diagnosis.members.of("fabric/b1") == {"uid-2", "uid-3"}
    made.planner.roster.topologies(())
    made.after(1.0)
    assert set(diagnosis.members.domains()) == set()
