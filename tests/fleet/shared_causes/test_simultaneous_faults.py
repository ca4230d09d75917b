"""Several domains that fail at the same time: each of them is named, and their check is no false alarm."""

from __future__ import annotations

import pytest

from nodeguard.model.mark import Mark
from tests.fleet.shared_causes.scene import BEFORE, HOUR, MINUTE, History, fabric, rows

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("pods", [2, 3])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("nodes", "pod", "leaf"), [(256, 64, 16), (800, 160, 32)])
def test_leaves_of_several_pods_that_die_together(
    nodes: int, pod: int, leaf: int, seed: int, pods: int
) -> None:
    history = History(fabric(nodes, pod, leaf), f"leaves {nodes} {pods} {seed}")
    chosen = history.random.sample(range(nodes // pod), pods)
    dead = {f"fabric/p{number}/leaf{history.random.randrange(pod // leaf)}" for number in chosen}
    for domain in sorted(dead):
        history.fault("port-down", history.nodes(domain), BEFORE, within=history.random.choice([5.0, 60.0]))
    outcome = history.run(BEFORE + 1.5 * HOUR)
    assert (history.degraded, outcome.domains, outcome.suppressed) == (dead, dead, set())
    affected = {node for domain in dead for node in history.nodes(domain)}
    assert outcome.with_mark(Mark.DOMAIN_DEGRADED) == affected


@pytest.mark.parametrize("seed", range(3))
def test_three_whole_pods_that_lose_their_links(seed: int) -> None:
    history = History(fabric(800, 160, 32), f"pods {seed}")
    dead = {f"fabric/p{number}" for number in history.random.sample(range(5), 3)}
    for domain in sorted(dead):
        history.fault("port-down", history.nodes(domain), BEFORE, within=30.0)
    outcome = history.run(BEFORE + 1.5 * HOUR)
    assert (history.degraded, outcome.suppressed) == (dead, set())


@pytest.mark.parametrize("pods", [2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_racks_of_several_rows_that_lose_power_together(seed: int, pods: int) -> None:
    history = History(rows(800, 15, 10), f"racks {pods} {seed}")
    feeds = history.random.sample(sorted(history.topology.domains_at("power", 1)), pods)
    dead = {
        history.random.choice(
            [path for path in history.topology.domains_at("power", 2) if path.startswith(f"{feed}/")]
        )
        for feed in feeds
    }
    for domain in sorted(dead):
        history.fault("node-down", history.nodes(domain), BEFORE, within=3.0)
    outcome = history.run(BEFORE + 1.5 * HOUR)
    assert (history.degraded, outcome.suppressed) == (dead, set())


@pytest.mark.parametrize("seed", range(2))
def test_two_rows_that_overheat_at_the_same_time(seed: int) -> None:
    history = History(rows(800, 15, 10), f"rows {seed}")
    hot = {f"rack/row{number}" for number in history.random.sample(range(5), 2)}
    for domain in sorted(hot):
        members = history.nodes(domain)
        affected = history.random.sample(members, round(history.random.uniform(0.5, 1.0) * len(members)))
        history.fault("overheated", affected, BEFORE, within=20 * MINUTE)
    outcome = history.run(BEFORE + 2.5 * HOUR)
    assert (history.degraded, outcome.suppressed) == (hot, set())


@pytest.mark.parametrize("seed", range(3))
def test_a_false_alarm_on_nodes_of_all_leaves_names_no_domain(seed: int) -> None:
    """The same number of nodes as three dead leaves, but of the whole fleet."""
    history = History(fabric(800, 160, 32), f"false alarm {seed}")
    history.fault("port-down", history.random.sample(range(800), 96), BEFORE, within=60.0)
    outcome = history.run(BEFORE + HOUR)
    assert (outcome.domains, history.suppressed) == (set(), {"port-down"})


@pytest.mark.parametrize("pods", [2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_a_leaf_with_few_lost_links_beside_dead_leaves(seed: int, pods: int) -> None:
    history = History(fabric(800, 160, 32), f"few beside dead {pods} {seed}")
    *chosen, partial = history.random.sample(range(5), pods + 1)
    dead = {f"fabric/p{number}/leaf{history.random.randrange(5)}" for number in chosen}
    for domain in sorted(dead):
        history.fault("port-down", history.nodes(domain), BEFORE, within=5.0)
    few = history.random.sample(history.nodes(f"fabric/p{partial}/leaf1"), 5)
    history.fault("port-down", few, BEFORE, within=60.0)
    outcome = history.run(BEFORE + HOUR)
    assert dead <= outcome.domains <= {*dead, f"fabric/p{partial}/leaf1"}
    assert outcome.suppressed == set()
