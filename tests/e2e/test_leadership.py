"""Two aggregators of which one loses its agents, its API server or its rights: faults are still marked, and the
first line of all output has the reason why nothing is written.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from tests.controlplane.cluster import Cluster
from tests.controlplane.objects import clear_cluster
from tests.daemonset.manifests import AGGREGATOR, NAMESPACE
from tests.e2e.api_proxy import ApiProxy, proxied
from tests.e2e.bulk_nodes import make_nodes
from tests.e2e.fleet import Aggregator, Fleet, deployed_fleet
from tests.e2e.scene import is_marked
from tests.e2e.swarm import Swarm, fatal_finding, faulty_report, healthy_report, swarm
from tests.waiting import PATIENCE

pytestmark = pytest.mark.slow

NAMES = [f"gpu-{number:02}" for number in range(40)]
HEALTHY = healthy_report(["gpu-lost"])
FAULTY = faulty_report(HEALTHY, fatal_finding("gpu-lost"))
POLICY = """
defaultMode: enforce
gracePeriod: {quarantine: 1s, suspect: 1s}
budget: {fleet: 50%, pool: 100%, perCheck: {new: 100, within: 10m, active: 100}}
diagnosis: {suppression: {minNodes: 10000}}
staleNodes: {after: 20s}
"""
# Seconds by which each response of the API server is late.
DELAYS = (1.8, 2.5, 3.0)

ROLES = "/apis/rbac.authorization.k8s.io/v1"


class Pair:
    """Two aggregators with the reports of healthy nodes, each behind a proxy of its own. names: of nodes without a fault."""

    def __init__(
        self, fleet: Fleet, agents: Swarm, proxies: dict[Aggregator, ApiProxy], cluster: Cluster
    ) -> None:
        self.fleet, self.agents, self.proxies, self.cluster = fleet, agents, proxies, cluster
        self.names = iter(NAMES)

    def leader(self) -> Aggregator:
        """Wait for a leader, and return it."""

        def leaders() -> list[Aggregator]:
            return [item for item in self.proxies if item.metric("nodeguard_aggregator_active") == 1]

        (leader,) = next(iter(self.proxies)).until(leaders)
        return leader

    def other(self, aggregator: Aggregator) -> Aggregator:
        return next(item for item in self.proxies if item is not aggregator)

    def fail(self) -> str:
        """Report a fault of a node without one, and return its name."""
        name = next(self.names)
        self.agents.set_reports({name: FAULTY})
        return name

    def mark(self) -> float:
        """Report a fault of a node without one, and return the seconds until its mark."""
        begin, name = time.monotonic(), self.fail()
        next(iter(self.proxies)).until(lambda: is_marked(self.cluster, name))
        return time.monotonic() - begin


@pytest.fixture(scope="module")
def pair(shared_cluster: Cluster) -> Iterator[Pair]:
    """Each test leaves one leader, another aggregator that is ready, and both with all their agents and rights."""
    clear_cluster(shared_cluster)
    with deployed_fleet(shared_cluster) as fleet:
        fleet.policy.write_text(POLICY)
        uids = make_nodes(shared_cluster, NAMES)
        both = fleet.add_aggregators()
        with proxied(shared_cluster, *both) as proxies:
            for aggregator in both:
                aggregator.start()
            fleet.distribute_ca()
            with swarm(fleet, uids, HEALTHY, *both) as agents:
                agents.start()
                agents.wait_until_delivered()
                for aggregator in both:
                    aggregator.ready()
                pair = Pair(fleet, agents, dict(zip(both, proxies, strict=True)), shared_cluster)
                print(f"marked after {pair.mark():.1f} s")
                yield pair


def readiness(aggregator: Aggregator) -> tuple[int, str]:
    """Return the status and the first line of /readyz."""
    try:
        with urlopen(f"http://{aggregator.metrics}/readyz", timeout=PATIENCE) as response:
            return response.status, response.read().decode().splitlines()[0]
    except HTTPError as error:
        with error:
            return error.code, error.read().decode().splitlines()[0]


def obstacle(aggregator: Aggregator, *kinds: str) -> Any:
    """Wait until an aggregator reports an obstacle of one of these kinds, and return it."""

    def current() -> Any:
        value = aggregator.query("/v1/status").get("obstacle")
        return value if value is not None and value["kind"] in kinds else None

    return aggregator.until(current)


def test_a_leader_that_no_agent_reaches_hands_over(pair: Pair) -> None:
    first = pair.leader()
    second = pair.other(first)
    pair.agents.cut(first.address)
    begin = time.monotonic()
    first.until(lambda: first.query("/v1/status")["frozen"])
    print(f"frozen after {time.monotonic() - begin:.1f} s")
    status = first.query("/v1/status")
    assert status["frozen_since"]
    seconds = pair.mark()
    print(f"marked {seconds:.1f} s after the report, {time.monotonic() - begin:.1f} s after the cut")
    assert second.metric("nodeguard_aggregator_active") == 1
    reason = obstacle(first, "standby")["reason"]
    assert "this replica receives reports of 0 of 40 agents" in reason
    assert readiness(first)[0] == 200
    # It stays so when the agents return.
    pair.agents.cut()
    pair.agents.wait_until_delivered()
    assert pair.mark() < 30.0
    assert second.metric("nodeguard_aggregator_leader") == 1


def test_a_fault_is_marked_while_each_response_of_the_api_server_is_late(pair: Pair) -> None:
    for delay in DELAYS:
        a_fault_is_marked_with_a_delay(pair, delay)


def a_fault_is_marked_with_a_delay(pair: Pair, delay: float) -> None:
    leader = pair.leader()
    for proxy in pair.proxies.values():
        proxy.delay(delay)
    begin = time.monotonic()
    time.sleep(10.0)
    seconds = pair.mark()
    print(f"delay {delay} s: marked after {seconds:.1f} s")
    assert time.monotonic() - begin < 40.0
    while time.monotonic() - begin < 40.0:
        assert leader.metric("nodeguard_aggregator_leader") == 1
        time.sleep(1.0)
    for proxy in pair.proxies.values():
        proxy.delay(0.0)
    assert pair.leader() is leader


def test_a_leader_cut_from_the_api_server_names_the_reason(pair: Pair) -> None:
    first = pair.leader()
    second = pair.other(first)
    pair.proxies[first].stall()
    begin = time.monotonic()
    name = pair.fail()
    assert obstacle(first, "api-unreachable")["reason"] == "the API server has not answered"
    print(f"the cut replica names the reason after {time.monotonic() - begin:.1f} s: {readiness(first)}")
    second.until(lambda: is_marked(pair.cluster, name))
    print(f"marked by the other after {time.monotonic() - begin:.1f} s")
    first.until(lambda: readiness(first)[0] == 503)
    print(f"not ready after {time.monotonic() - begin:.1f} s: {readiness(first)}")
    pair.proxies[first].restore()
    first.until(lambda: readiness(first)[0] == 200)
    assert obstacle(first, "standby")["effect"] == "this replica writes nothing"


def test_a_missing_right_is_named(pair: Pair) -> None:
    role = f"{ROLES}/namespaces/{NAMESPACE}/roles/{AGGREGATOR}"
    cluster_role = f"{ROLES}/clusterroles/{AGGREGATOR}"
    api, leader = pair.cluster.api, pair.leader()
    rules = api.get(cluster_role)["rules"]
    without = [
        {**rule, "verbs": [verb for verb in rule["verbs"] if verb != "patch"]}
        if "nodes" in rule.get("resources", [])
        else rule
        for rule in rules
    ]
    api.patch(cluster_role, {"rules": without})
    begin = time.monotonic()
    name = pair.fail()
    refused = obstacle(leader, "writes-refused")
    print(f"refused writes are named after {time.monotonic() - begin:.1f} s: {refused}")
    assert f'nodes "{name}" is forbidden' in refused["reason"]
    leader.until(lambda: readiness(leader)[0] == 503)
    print(f"not ready after {time.monotonic() - begin:.1f} s: {readiness(leader)}")
    api.patch(cluster_role, {"rules": rules})
    leader.until(lambda: is_marked(pair.cluster, name))
    leader.until(lambda: readiness(leader) == (200, "ready"))

    rules = api.get(role)["rules"]
    api.patch(role, {"rules": [rule for rule in rules if "leases" not in rule.get("resources", [])]})
    begin = time.monotonic()
    for aggregator in pair.proxies:
        refused = obstacle(aggregator, "api-refuses")
        assert "leases.coordination.k8s.io" in refused["reason"]
    print(f"a forbidden Lease is named after {time.monotonic() - begin:.1f} s: {refused}")
    api.patch(role, {"rules": rules})
    begin = time.monotonic()
    pair.leader()
    print(f"active {time.monotonic() - begin:.1f} s after the right is back")
