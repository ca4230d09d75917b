"""Leaves and their pod: the domain that is named is the one that failed."""

from __future__ import annotations

import pytest

from nodeguard.model.mark import Mark
from nodeguard.simulate.fleet_topology import TopologySizes, simulated_topology
from tests.fleet.shared_causes.scene import BEFORE, HOUR, MINUTE, History, fabric, rows

pytestmark = pytest.mark.slow

# Nodes, nodes of a pod and of a leaf: pods of four leaves.
FLEETS = [(64, 32, 8), (256, 64, 16)]


@pytest.mark.parametrize("seed", range(7))
@pytest.mark.parametrize(("nodes", "pod", "leaf"), FLEETS)
def test_two_dead_leaves_of_a_pod_of_four_are_two_leaves(nodes: int, pod: int, leaf: int, seed: int) -> None:
    history = History(fabric(nodes, pod, leaf), f"two leaves {nodes} {seed}")
    pods = nodes // pod
    name = f"fabric/p{history.random.randrange(pods)}"
    dead = {f"{name}/leaf{number}" for number in history.random.sample(range(4), 2)}
    gap = history.random.choice([0.0, 30.0, 300.0, 900.0])
    for delay, domain in enumerate(sorted(dead)):
        history.fault("port-down", history.nodes(domain), BEFORE + delay * gap)
    outcome = history.run(BEFORE + 1.5 * HOUR)
    assert (history.degraded, outcome.domains, outcome.suppressed) == (dead, dead, set())
    affected = {node for domain in dead for node in history.nodes(domain)}
    assert outcome.with_mark(Mark.DOMAIN_DEGRADED) == affected


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("nodes", "pod", "leaf"), FLEETS)
def test_a_pod_that_loses_all_leaves_is_one_pod(nodes: int, pod: int, leaf: int, seed: int) -> None:
    history = History(fabric(nodes, pod, leaf), f"pod {nodes} {seed}")
    name = f"fabric/p{history.random.randrange(nodes // pod)}"
    history.fault("port-down", history.nodes(name), BEFORE, within=history.random.choice([5.0, 60.0]))
    outcome = history.run(BEFORE + 1.5 * HOUR)
    assert (history.degraded, outcome.suppressed) == ({name}, set())


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("nodes", "pod", "leaf"), FLEETS)
def test_a_pod_with_faults_spread_over_three_or_more_leaves_is_one_pod(
    nodes: int, pod: int, leaf: int, seed: int
) -> None:
    """A spine with faults affects a share of the nodes of each leaf."""
    history = History(fabric(nodes, pod, leaf), f"spread {nodes} {seed}")
    name = f"fabric/p{history.random.randrange(nodes // pod)}"
    for leaf_number in history.random.sample(range(4), history.random.choice([3, 4])):
        members = history.nodes(f"{name}/leaf{leaf_number}")
        share = history.random.uniform(0.4, 0.8)
        affected = history.random.sample(members, max(3, round(share * len(members))))
        history.fault("port-down", affected, BEFORE, within=60.0)
    outcome = history.run(BEFORE + 1.5 * HOUR)
    assert (history.degraded, outcome.suppressed) == ({name}, set())


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("nodes", "pod", "leaf"), FLEETS)
def test_single_faults_beside_two_dead_leaves_do_not_make_them_a_pod(
    nodes: int, pod: int, leaf: int, seed: int
) -> None:
    history = History(fabric(nodes, pod, leaf), f"beside {nodes} {seed}")
    leaves = history.random.sample([f"fabric/p1/leaf{number}" for number in range(4)], 4)
    dead, others = set(leaves[:2]), leaves[2:]
    for domain in sorted(dead):
        history.fault("port-down", history.nodes(domain), BEFORE)
    single = history.random.choice(history.nodes(history.random.choice(others)))
    history.fault("port-down", [single], BEFORE + history.random.uniform(-60.0, 60.0))
    outcome = history.run(BEFORE + 1.5 * HOUR)
    assert (history.degraded, outcome.domains, outcome.suppressed) == (dead, dead, set())


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("nodes", "racks", "rack"), [(128, 4, 8), (320, 4, 16)])
def test_two_hot_racks_of_a_row_of_four_are_two_racks(nodes: int, racks: int, rack: int, seed: int) -> None:
    history = History(rows(nodes, racks, rack), f"two racks {nodes} {seed}")
    row = history.random.choice(history.topology.domains_at("rack", 1))
    parts = [path for path in history.topology.domains_at("rack", 2) if path.startswith(f"{row}/")]
    hot = set(history.random.sample(parts, 2))
    for domain in sorted(hot):
        history.fault("overheated", history.nodes(domain), BEFORE, within=10 * MINUTE)
    outcome = history.run(BEFORE + 2 * HOUR)
    assert (history.degraded, outcome.domains, outcome.suppressed) == (hot, hot, set())


@pytest.mark.parametrize("seed", range(3))
def test_two_racks_without_power_of_a_feed_of_four_are_two_racks(seed: int) -> None:
    history = History(
        simulated_topology(320, TopologySizes(feed=4, rack=10, nvlink_share=0.0)), f"power {seed}"
    )
    feed = history.random.choice(history.topology.domains_at("power", 1))
    parts = [path for path in history.topology.domains_at("power", 2) if path.startswith(f"{feed}/")]
    dark = set(history.random.sample(parts, 2))
    for domain in sorted(dark):
        history.fault("node-down", history.nodes(domain), BEFORE, within=3.0)
    outcome = history.run(BEFORE + HOUR)
    assert (history.degraded, outcome.domains, outcome.suppressed) == (dark, dark, set())


@pytest.mark.parametrize("seed", range(3))
def test_a_feed_with_two_dark_racks_and_half_of_a_third_is_one_feed(seed: int) -> None:
    sizes = TopologySizes(feed=3, rack=6, leaf=8, nvlink_share=0.0)
    history = History(simulated_topology(108, sizes), f"feed {seed}")
    feed = history.random.choice(history.topology.domains_at("power", 1))
    parts = [path for path in history.topology.domains_at("power", 2) if path.startswith(f"{feed}/")]
    *dark, partial = history.random.sample(parts, 3)
    affected = [node for domain in dark for node in history.nodes(domain)]
    affected += history.random.sample(history.nodes(partial), 2)
    history.fault("node-down", affected, BEFORE, within=3.0)
    outcome = history.run(BEFORE + HOUR)
    assert (history.degraded, outcome.suppressed) == ({feed}, set())


@pytest.mark.parametrize("seed", range(3))
def test_a_large_rack_that_overheats_is_not_its_row_of_two(seed: int) -> None:
    """Its first nodes are enough for the share of the row, and not yet for that of the rack."""
    history = History(rows(608, 2, 38), f"large rack {seed}")
    rack = f"rack/row{seed}/r{2 * seed}"
    affected = history.random.sample(history.nodes(rack), 30)
    history.fault("overheated", affected, BEFORE, within=8 * MINUTE)
    outcome = history.run(BEFORE + HOUR)
    assert (outcome.domains, outcome.suppressed) == ({rack}, set())
