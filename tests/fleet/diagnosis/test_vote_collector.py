"""Tests for nodeguard.fleet.diagnosis.vote_collector: nodes and their domains."""

from __future__ import annotations

from itertools import count

from nodeguard.fleet.diagnosis.vote_collector import MAX_VOTES, VOTE_INTERVAL
from nodeguard.model.policy import NodeLocation, Policy, TopologyLabels
from tests.fleet.scene import Fleet, finding


def test_all_that_move_at_once_are_known_where_they_are_from_the_next_look_on() -> None:
    made = Fleet(0)
    for number in range(4):
        made.add(number, labels={"block": f"b{number // 2}"})
    made.after(1.0)
    diagnosis = made.planner.diagnosis
    assert set(diagnosis.members.domains()) == set()
    made.planner.state.import_topologies((TopologyLabels("fabric", ("block",)),))
    made.after(1.0)
    assert diagnosis.members.nodes("fabric/b1") == {"uid-2", "uid-3"}
    made.planner.state.import_topologies(())
    made.after(1.0)
    assert set(diagnosis.members.domains()) == set()


def test_one_node_with_ever_new_checks_is_remembered_for_few_of_them() -> None:
    made = Fleet(8, Policy(locations=(NodeLocation("node-*", {"rack": "r1"}),)))
    names = count()
    for _ in range(60):
        made.say(0, *(finding(f"made-up-{next(names)}", topologies=("rack",)) for _ in range(128)))
        made.after(1.0)
        made.plan()
    watches = made.planner.diagnosis.voting.firings
    assert MAX_VOTES - 2 <= len(watches) <= MAX_VOTES + 60 / VOTE_INTERVAL + 2
    # Another node's votes count as before, and its own count again after a while.
    made.say(1, finding("gpu-lost"))
    assert watches["gpu-lost"].active == {"uid-1"}
    made.after(2 * VOTE_INTERVAL)
    made.say(0, finding("gpu-lost"))
    assert watches["gpu-lost"].active == {"uid-0", "uid-1"}


def test_unused_check_names_are_forgotten() -> None:
    made = Fleet(8)
    voting, now = made.planner.diagnosis.voting, made.now.mono
    for number in range(10_000):
        voting.record_firing("uid-0", f"made-up-{number}", now)
        voting.vote("uid-0", f"made-up-{number}", ("rack",), now)
        voting.record_cleared("uid-0", f"made-up-{number}")
    voting.forget((), now + 10 * 86_400.0)
    assert voting.firings == {}
    assert len(voting._classes_of_check) + len(voting._cast) == 0
