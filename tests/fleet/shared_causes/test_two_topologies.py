"""Faults that affect domains of two topologies: the one that explains all nodes is named."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from nodeguard.simulate.fleet_topology import FEED, RACK, SimulatedTopology, TopologySizes, simulated_topology
from tests.fleet.shared_causes.scene import BEFORE, HOUR, History


@pytest.mark.parametrize("share", [0.8, 0.95, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_a_pod_without_its_management_network_is_one_pod(seed: int, share: float) -> None:
    """Racks of the pod in which all nodes are unreachable have power."""
    history = History(simulated_topology(1_100), f"management {share} {seed}")
    pod = history.random.choice(["fabric/p0", "fabric/p1"])
    members = history.nodes(pod)
    affected = history.random.sample(members, round(share * len(members)))
    history.fault("agent-unreachable", affected, BEFORE, within=5.0)
    outcome = history.run(BEFORE + HOUR)
    assert (outcome.domains, outcome.suppressed) == ({pod}, set())


@pytest.mark.parametrize("seed", range(3))
def test_a_rack_without_power_is_a_rack(seed: int) -> None:
    """It has most nodes of no leaf."""
    history = History(simulated_topology(800), f"dark rack {seed}")
    rack = history.random.choice(
        [path for path in history.topology.domains_at("power", 2) if len(history.nodes(path)) > 8]
    )
    history.fault("node-down", history.nodes(rack), BEFORE, within=3.0)
    outcome = history.run(BEFORE + HOUR)
    assert (outcome.domains, outcome.suppressed) == ({rack}, set())


@pytest.mark.parametrize("share", [0.55, 0.8])
@pytest.mark.parametrize("seed", range(3))
def test_a_power_feed_that_shows_on_part_of_its_nodes_is_the_feed(seed: int, share: float) -> None:
    """All nodes of some small leaves, and half of a pod, are on this feed."""
    sizes = TopologySizes(pod=64, leaf=4, row=4, rack=8, feed=4, nvlink_share=0.0)
    history = History(simulated_topology(256, sizes), f"feed {share} {seed}")
    feed = f"power/feed{history.random.randrange(8)}"
    members = history.nodes(feed)
    history.fault("node-down", history.random.sample(members, round(share * len(members))), BEFORE)
    outcome = history.run(BEFORE + HOUR)
    assert (outcome.domains, outcome.suppressed) == ({feed}, set())


def racks_with_wrong_labels(wrong: int) -> SimulatedTopology:
    """Return a fleet in which each rack is a leaf of a pod with four, but some nodes of the last leaf have the label of
    the first rack.
    """
    made = simulated_topology(256, TopologySizes(pod=128, leaf=32, rack=32, row=4, feed=4, nvlink_share=0.0))
    first, nodes = made.nodes[0], list(made.nodes)
    for index in range(-wrong, 0):
        labels = {**nodes[index].labels, FEED: first.labels[FEED], RACK: first.labels[RACK]}
        nodes[index] = replace(nodes[index], labels=labels)
    return replace(made, nodes=tuple(nodes))


@pytest.mark.parametrize("wrong", [0, 2])
@pytest.mark.parametrize("seed", range(3))
def test_a_rack_without_power_that_is_a_leaf_is_a_rack(seed: int, wrong: int) -> None:
    history = History(racks_with_wrong_labels(wrong), f"rack as leaf {wrong} {seed}")
    affected = history.random.sample(range(32), 29)
    history.fault("node-down", affected, BEFORE, within=3.0)
    outcome = history.run(BEFORE + HOUR)
    assert (outcome.domains, outcome.suppressed) == ({"power/feed0/r0"}, set())


@pytest.mark.parametrize("seed", range(3))
def test_a_pod_of_one_leaf_that_falls_silent_is_no_rack(seed: int) -> None:
    """The leaf has the nodes of the pod, and is named. Most of them are in a rack with others."""
    made = simulated_topology(256, TopologySizes(pod=16, leaf=16, rack=12, row=4, feed=4, nvlink_share=0.0))
    history = History(made, f"pod of one leaf {seed}")
    history.fault("agent-unreachable", history.random.sample(range(16), 14), BEFORE, within=3.0)
    outcome = history.run(BEFORE + HOUR)
    assert (outcome.domains, outcome.suppressed) == ({"fabric/p0/leaf0"}, set())


@pytest.mark.parametrize("seed", range(3))
def test_nodes_without_a_pod_do_not_make_a_pod_the_racks_that_it_has(seed: int) -> None:
    """The labels of two racks name all silent nodes, those of the pod nine tenths of them."""
    made = simulated_topology(256, TopologySizes(pod=64, leaf=32, rack=32, row=4, feed=4, nvlink_share=0.0))
    history = History(made, f"nodes without a pod {seed}")
    members, nodes = history.nodes("fabric/p1"), list(made.nodes)
    for index in history.random.sample(members, 6):
        labels = {key: nodes[index].labels[key] for key in (FEED, RACK)}
        nodes[index] = replace(nodes[index], labels=labels)
    history.topology = replace(made, nodes=tuple(nodes))
    history.fault("agent-unreachable", members, BEFORE, within=3.0)
    outcome = history.run(BEFORE + HOUR)
    assert (outcome.domains, outcome.suppressed) == ({"fabric/p1"}, set())


@pytest.mark.parametrize("seed", range(6))
def test_a_pod_within_a_feed_is_no_feed_and_its_rack(seed: int) -> None:
    """A rack is in the pod, and its feed has the other nodes of the pod: feed and rack have the same votes."""
    made = simulated_topology(256, TopologySizes(pod=14, leaf=5, row=4, rack=11, feed=3, nvlink_share=0.0))
    history = History(made, f"pod within a feed {seed}")
    history.fault("agent-unreachable", history.random.sample(range(42, 56), 13), BEFORE, within=10.0)
    outcome = history.run(BEFORE + HOUR)
    assert (outcome.domains, outcome.suppressed) == ({"fabric/p3"}, set())
