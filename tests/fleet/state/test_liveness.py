from __future__ import annotations

from collections.abc import Iterable
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nodeguard.fleet.state.liveness import LONG_STALE
from nodeguard.model.inventory import InventoryNode
from nodeguard.model.policy import StalePolicy, TopologyLabels
from tests.fleet.plain_silence import silence
from tests.fleet.scene import AT_ONCE, Fleet, finding


def test_a_stale_agent_proves_nothing_and_marks_nothing() -> None:
    fleet = Fleet(30)
    fleet.report(0, finding())
    fleet.carry_out()
    fleet.report(0)
    fleet.report(1, finding())
    fleet.mono += 46.0
    fleet.wall += 46.0
    for number in range(2, 30):
        fleet.planner.record_heartbeat(f"uid-{number}", fleet.now)
    fleet.planner.tick(fleet.now)
    assert fleet.planner.stale_agents.stale == {"uid-0", "uid-1"}
    fleet.carry_out()
    assert fleet.marked() == [0]


def test_many_stale_agents_freeze_new_marks_unless_a_domain_explains_them() -> None:
    views = (TopologyLabels("rack", ("rack",)),)
    for lost, marked in ((range(8), [20]), (range(0, 24, 3), [])):
        fleet = Fleet(32, replace(AT_ONCE, topologies=views))
        fleet.mono += 46.0
        for number in set(range(32)) - set(lost):
            fleet.planner.record_heartbeat(f"uid-{number}", fleet.now)
        fleet.planner.tick(fleet.now)
        fleet.report(20, finding())
        fleet.carry_out()
        assert fleet.marked() == marked


def stale(fleet: Fleet, numbers: Iterable[int]) -> str:
    """Let agents become stale, and return why marks are frozen."""
    fleet.mono += 46.0
    fleet.wall += 46.0
    for uid in fleet.nodes.keys() - {f"uid-{number}" for number in numbers}:
        fleet.planner.record_heartbeat(uid, fleet.now)
    fleet.planner.tick(fleet.now)
    return fleet.planner.stale_agents.frozen


@pytest.mark.parametrize(
    ("size", "down", "is_frozen"),
    [
        (3, 1, False),
        (3, 2, True),  # half of the fleet: the cause may be the network of the cluster
        (5, 2, False),
        (9, 3, False),
        (20, 3, False),
        (20, 4, True),
        (100, 10, False),
        (100, 11, True),
    ],
)
def test_a_few_nodes_that_are_down_freeze_no_marks(size: int, down: int, is_frozen: bool) -> None:
    fleet = Fleet(size)
    for number in range(down):
        fleet.change(number, ready=False)
    assert bool(stale(fleet, range(down))) == is_frozen


@pytest.mark.parametrize(
    ("size", "down", "is_frozen"),
    [(3, 2, True), (19, 2, False), (19, 3, False), (19, 4, True), (60, 7, True)],
)
def test_a_few_agents_that_are_stale_for_long_freeze_no_marks(size: int, down: int, is_frozen: bool) -> None:
    """As of nodes that are powered off, without a Node that shows it."""
    fleet = Fleet(size)
    assert stale(fleet, range(down))
    for _ in range(19):
        assert stale(fleet, range(down))
    assert bool(stale(fleet, range(down))) == is_frozen
    # A Node that changes stays one with a stale agent.
    fleet.change(0, labels={"rack": "r1"})
    assert bool(stale(fleet, range(down))) == is_frozen
    # An agent that reports in between has been stale for a short time.
    if down == 3:
        for number in range(2):
            fleet.planner.record_heartbeat(f"uid-{number}", fleet.now)
        fleet.planner.tick(fleet.now)
        assert stale(fleet, range(down))


@given(st.lists(st.tuples(st.integers(0, 18), st.integers(0, 40), st.integers(1, 60)), max_size=12))
def test_marks_are_frozen_for_as_long_as_many_agents_are_cut_off(cuts: list[tuple[int, int, int]]) -> None:
    """In a fleet of 19, whatever the network does to them: each cut has a node, and its first and last step."""
    fleet = Fleet(19)
    for step in range(60):
        cut = {number for number, first, length in cuts if first <= step < first + length}
        frozen = stale(fleet, cut)
        # Three that are stale for long, and one more.
        if len(cut) > 4:
            assert frozen
        if len(cut) < 2:
            assert not frozen


def test_a_node_that_is_ready_again_does_not_explain_its_stale_agent() -> None:
    fleet = Fleet(9)
    for number in range(2):
        fleet.change(number, ready=False)
    assert not stale(fleet, range(2))
    fleet.change(0, ready=True)
    assert not stale(fleet, range(2))
    fleet.change(1, ready=True)
    assert stale(fleet, range(2)).startswith(
        "2 of 9 agents do not report, and no failure domain explains them"
    )


# What may happen to a node, and how many seconds later.
_STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            (
                *("beat", "say", "come", "bare", "leave", "patient", "impatient", "for good"),
                *("down", "move", "jump"),
            )
        ),
        st.integers(0, 11),
        st.sampled_from((0.0, 1.0, 20.0, 45.0, 46.0, 900.0)),
    ),
    max_size=60,
)


@given(_STEPS)
def test_stale_agents_equal_a_check_of_every_node(steps: list[tuple[str, int, float]]) -> None:
    fleet = Fleet(0, replace(AT_ONCE, topologies=(TopologyLabels("rack", ("rack",)),)))
    since: dict[str, float] = {}
    for what, number, seconds in steps:
        fleet.mono += seconds
        fleet.wall += seconds
        uid, planner = f"uid-{number}", fleet.planner
        match what:
            case "beat":
                planner.record_heartbeat(uid, fleet.now)
            case "for good":
                planner.record_heartbeat(uid, replace(fleet.now, mono=inf))
            case "say":
                fleet.report(number)
            case "leave":
                planner.remove_node(uid)
            case "come" | "bare" | "down" | "move":
                labels = {"rack": f"r{number // 4 if what != 'move' else 3}"}
                gpus, ready = 0 if what == "bare" else 8, what != "down"
                planner.update_node(
                    InventoryNode(uid, f"node-{number}", labels=labels, gpus=gpus, ready=ready)
                )
            case "jump":
                fleet.wall += 3600.0 * (number - 6)
            case _:
                planner.set_policy(
                    replace(planner.policy, stale=StalePolicy(90.0 if what == "patient" else 20.0))
                )
        planner.tick(fleet.now)
        after, freeze = planner.policy.stale.after, planner.policy.stale.freeze
        stale = planner.stale_agents.stale
        since = {uid: since.get(uid, fleet.mono) for uid in stale}
        long_stale = {uid for uid, at in since.items() if fleet.mono - at >= LONG_STALE}
        assert planner.stale_agents == silence(
            planner.state.placements, planner.last_reports, fleet.mono, after, freeze, long_stale
        )


def test_a_node_is_stale_from_its_last_report() -> None:
    fleet = Fleet(3)
    for number in range(3):
        fleet.planner.record_heartbeat(f"uid-{number}", replace(fleet.now, mono=inf))
    fleet.mono += 1000.0
    fleet.planner.tick(fleet.now)
    assert not fleet.planner.stale_agents.stale
    fleet.planner.record_heartbeat("uid-1", replace(fleet.now, mono=fleet.mono - 40.0))
    fleet.planner.tick(fleet.now)
    assert not fleet.planner.stale_agents.stale
    fleet.mono += 5.0
    fleet.planner.tick(fleet.now)
    assert fleet.planner.stale_agents.stale == {"uid-1"}
