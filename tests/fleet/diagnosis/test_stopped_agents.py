"""Tests for nodeguard.fleet.diagnosis.stopped_agents: the result of updates equals that of all nodes examined again."""

from __future__ import annotations

import copy

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nodeguard.fleet.diagnosis.stopped_agents import StoppedChanges
from nodeguard.model.inventory import InventoryNode
from nodeguard.model.policy import StalePolicy, TopologyLabels
from tests.fleet.scene import AT_ONCE, Fleet

# What happens to a node, and how many seconds later.
_STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            (
                *("beat", "report", "announce end", "delete", "ready", "not ready", "move", "without GPUs"),
                *("jump", "patient", "impatient", "plan", "wait"),
            )
        ),
        st.integers(0, 7),
        st.sampled_from((0.0, 1.0, 20.0, 46.0, 61.0, 500.0)),
    ),
    max_size=50,
)


def take_step(fleet: Fleet, what: str, number: int) -> None:
    uid, planner = f"uid-{number}", fleet.planner
    match what:
        case "beat":
            planner.record_heartbeat(uid, fleet.now)
        case "report":
            fleet.report(number)
        case "announce end":
            fleet.report(number)
            leaving = replace(fleet.reports[uid], leaving=True)
            planner.record_report(uid, leaving, fleet.now)
        case "delete":
            planner.remove_node(uid)
        case "ready" | "not ready" | "move" | "without GPUs":
            rack, is_ready = f"r{number // 4 if what != 'move' else 3}", what != "not ready"
            planner.update_node(
                InventoryNode(
                    uid,
                    f"node-{number}",
                    labels={"rack": rack},
                    gpus=0 if what == "without GPUs" else 8,
                    ready=is_ready,
                    not_ready_since=0.0 if is_ready else fleet.wall - 10.0,
                )
            )
        case "jump":
            # A step of the clock examines no node: each is examined at its next change.
            fleet.wall += 3600.0 * (number - 4)
            for node in planner.state.nodes:
                planner.vote_collector.evidence.stopped.touch(node)
        case "patient" | "impatient":
            seconds = 90.0 if what == "patient" else 20.0
            planner.set_policy(replace(planner.policy, stale=StalePolicy(seconds)))
        case "plan":
            fleet.plan()


@given(_STEPS)
def test_updates_equal_an_examination_of_all_nodes(steps: list[tuple[str, int, float]]) -> None:
    fleet = Fleet(0, replace(AT_ONCE, topologies=(TopologyLabels("rack", ("rack",)),)))
    state, stopped = fleet.planner.state, fleet.planner.vote_collector.evidence.stopped
    for what, number, seconds in steps:
        fleet.mono += seconds
        fleet.wall += seconds
        take_step(fleet, what, number)
        fleet.planner.tick(fleet.now)
        stale = fleet.planner.stale_agents.stale
        again = copy.copy(stopped)
        again.since = dict(stopped.since)
        again._candidates = None if stopped._candidates is None else set(stopped._candidates)
        again.missing, again._touched = set(stopped.missing), set(state.nodes)
        changes = again.update(stale, fleet.now)
        assert changes == StoppedChanges(set(), set(), set())
        assert again.since == stopped.since
        assert stopped.stale == stale
        assert stopped.since.keys() == {
            uid
            for uid in stale
            if (uid in stopped.missing if uid not in state.reports else not state.reports[uid].leaving)
        }
