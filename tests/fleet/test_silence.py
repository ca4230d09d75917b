from __future__ import annotations

from msgspec.structs import replace

from nodeguard.model.policy import View
from tests.fleet.scene import AT_ONCE, Fleet, finding


def test_silence_of_a_node_proves_nothing_and_marks_nothing() -> None:
    fleet = Fleet(30)
    fleet.say(0, finding())
    fleet.carry_out()
    fleet.say(0)
    fleet.say(1, finding())
    fleet.mono += 46.0
    fleet.wall += 46.0
    for number in range(2, 30):
        fleet.planner.beat(f"uid-{number}", fleet.now)
    fleet.planner.tick(fleet.now)
    assert fleet.planner.silence.silent == {"uid-0", "uid-1"}
    fleet.carry_out()
    assert fleet.marked() == [0]


def test_many_silent_nodes_freeze_new_marks_unless_a_domain_explains_them() -> None:
    views = (View("rack", ("rack",)),)
    for lost, marked in ((range(8), [20]), (range(0, 24, 3), [])):
        fleet = Fleet(32, replace(AT_ONCE, views=views))
        fleet.mono += 46.0
        for number in set(range(32)) - set(lost):
            fleet.planner.beat(f"uid-{number}", fleet.now)
        fleet.planner.tick(fleet.now)
        fleet.say(20, finding())
        fleet.carry_out()
        assert fleet.marked() == marked
