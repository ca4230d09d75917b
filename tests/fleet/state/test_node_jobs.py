"""Tests for nodeguard.fleet.state.node_jobs."""

from __future__ import annotations

import pytest

from nodeguard.fleet.state.fleet_state import FleetState
from nodeguard.fleet.state.node_jobs import NodeJobs
from nodeguard.model.inventory import InventoryNode
from nodeguard.model.job import MAX_NODE_JOBS, MAX_STARTS, NodeJob
from nodeguard.model.node import Node
from nodeguard.model.policy import Policy
from tests.fleet.cluster_planner import inventory

START = 1_763_863_200.0


def node(**annotations: str) -> InventoryNode:
    named = {f"nodeguard.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    return inventory(Node("node-1", "uid-1", annotations=named, gpus=8))


def test_the_jobs_of_pods_are_limited_and_their_names_are_validated() -> None:
    jobs = NodeJobs()
    jobs.update_read("uid-1", (NodeJob("a/b", tuple(range(50))), NodeJob("not a name")))
    [job] = jobs.jobs("uid-1")
    assert (job.name, len(job.starts), job.starts[-1]) == ("a/b", MAX_STARTS, 49.0)
    jobs.update_read("uid-1", tuple(NodeJob(f"a/{number}") for number in range(100)))
    assert len(jobs.names("uid-1")) == MAX_NODE_JOBS
    jobs.update_read("uid-1", ())
    assert jobs.jobs("uid-1") == ()


@pytest.mark.parametrize(
    ("start", "starts"),
    [
        ("2025-11-23T02:00:00Z", (START,)),
        ("", ()),
        ("yesterday", ()),
        ("2025-11-23T02:00:00", ()),
    ],
)
def test_an_operators_annotation_precedes_the_pods(start: str, starts: tuple[float, ...]) -> None:
    jobs = NodeJobs()
    jobs.update_read("uid-1", (NodeJob("a/b"),))
    jobs.update_node(node(job="4711", job_start=start))
    assert jobs.jobs("uid-1") == (NodeJob("4711", starts),)
    jobs.update_node(node())
    assert jobs.names("uid-1") == ("a/b",)


def test_an_annotation_that_names_no_job_is_ignored() -> None:
    jobs = NodeJobs()
    jobs.update_read("uid-1", (NodeJob("a/b"),))
    jobs.update_node(node(job="\x1b[2J; rm"))
    assert jobs.names("uid-1") == ("a/b",)


def test_the_state_has_the_jobs_of_its_nodes_only_and_reports_each_change_once() -> None:
    state = FleetState(Policy())
    state.update_jobs("uid-1", (NodeJob("a/b"),))
    assert state.jobs.jobs("uid-1") == ()
    state.update_node(node())
    state.take_changed()
    for expected in (["uid-1"], []):
        state.update_jobs("uid-1", (NodeJob("a/b"),))
        assert list(state.take_changed()) == expected
    state.remove_node("uid-1")
    state.update_node(node())
    assert state.jobs.jobs("uid-1") == ()
