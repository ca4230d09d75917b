"""Two aggregators with leader election, killed, suspended or restarted at the worst time.

They set the marks that one undisturbed aggregator would set, and never more than the budget.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from functools import partial

import pytest

from nodeguard.fleet.state.node_marks import decode_record
from nodeguard.model.mark import STATE_ANNOTATION
from tests.controlplane.cluster import Cluster
from tests.e2e.bulk_nodes import make_nodes
from tests.e2e.fleet import Aggregator, Fleet, deployed_fleet
from tests.e2e.swarm import Swarm, fatal_finding, faulty_report, healthy_report, swarm
from tests.e2e.watcher import NodeState, Watcher, max_marked

# The marks of the whole budget take more than a second: a burst of 50, then 50 a second. Fewer than a tenth of the
# nodes are stale.
NODES, FATAL, BUDGET, STALE = 160, 140, 120, 15

CHECKS = ("gpu-lost", "gpu-gsp-failure", "port-down")
HEALTHY = healthy_report(CHECKS)
NAMES = [f"gpu-{number:03}" for number in range(NODES)]

# Each fault is a minute older than the one before; the oldest ones are marked.
FAULTS = {
    name: faulty_report(HEALTHY, fatal_finding(CHECKS[number % 3], age=60.0 * number))
    for number, name in enumerate(NAMES[:FATAL])
}
WORST = set(NAMES[FATAL - BUDGET : FATAL])

POLICY = """
defaultMode: enforce
pause: {pause}
budget: {{fleet: {fleet}, fatalReserve: 0%, pool: 100%, perCheck: {{new: 1000, within: 10m, active: 1000}}}}
diagnosis: {{suppression: {{minNodes: 100000}}}}
gracePeriod: {{quarantine: 1s, suspect: 1s}}
soak: {{initial: 1s, max: 1s, resetAfter: 1m}}
"""
METRICS = (
    'nodeguard_aggregator_marked_nodes{mark="quarantine"}',
    'nodeguard_aggregator_incidents{state="marked"}',
    'nodeguard_aggregator_incidents{state="withheld"}',
    'nodeguard_aggregator_budget_used_ratio{budget="fleet"}',
    'nodeguard_aggregator_nodes{health="fatal"}',
    'nodeguard_aggregator_nodes{health="ok"}',
)


class Pair:
    """Two aggregators with the reports of 160 nodes, of which 140 are unhealthy; new marks are paused."""

    def __init__(self, fleet: Fleet, agents: Swarm, both: list[Aggregator]) -> None:
        self.fleet, self.agents, self.both = fleet, agents, both

    def leader(self, other_than: Aggregator | None = None) -> Aggregator:
        """Wait for a leader, and return it. other_than: an aggregator that does not count."""

        def leaders() -> list[Aggregator]:
            candidates = [aggregator for aggregator in self.both if aggregator is not other_than]
            active = [item for item in candidates if item.metric("nodeguard_aggregator_active") == 1]
            # Two are asked one after the other: the lease may change hands meanwhile.
            return active if len(active) == 1 else []

        return self.both[0].until(leaders)[0]

    def other(self, aggregator: Aggregator) -> Aggregator:
        (other,) = [item for item in self.both if item is not aggregator]
        return other

    def resume(self, fleet: str = "75%") -> None:
        """End the pause of new marks. fleet: the budget; by default the whole one."""
        self.fleet.policy.write_text(POLICY.format(pause="false", fleet=fleet))

    def wait_until_settled(self, watcher: Watcher, unreported: int = 0) -> None:
        """Wait until exactly the worst nodes are marked, and both aggregators agree.

        unreported: number of unhealthy nodes from which neither has a report.
        """
        self.both[0].until(lambda: len(watcher.marked()) >= BUDGET)
        assert watcher.marked().keys() == WORST
        expected = [BUDGET, BUDGET, FATAL - BUDGET, 1.0, FATAL - unreported, NODES - FATAL]
        for aggregator in self.both:
            aggregator.until(partial(_has_metrics, aggregator, expected))
        self.both[0].until(self._agree)
        assert watcher.marked().keys() == WORST

    def _agree(self) -> bool:
        first, second = map(self.view, self.both)
        return first == second

    @staticmethod
    def view(aggregator: Aggregator) -> tuple[object, object]:
        """Return the nodes without the age of their last report, and the state of each incident."""
        incidents = aggregator.query("/v1/incidents")["incidents"]
        nodes = aggregator.query("/v1/nodes")["nodes"]
        for node in nodes:
            del node["last_report_age"]
        return nodes, {incident["name"]: incident["state"] for incident in incidents}


def _has_metrics(aggregator: Aggregator, expected: list[float]) -> bool:
    return [aggregator.metric(name) for name in METRICS] == expected


def _withholds_all(aggregator: Aggregator) -> bool:
    return aggregator.metric('nodeguard_aggregator_incidents{state="withheld"}') == FATAL


@pytest.fixture
def pair(controlplane: Cluster) -> Iterator[Pair]:
    with deployed_fleet(controlplane) as fleet:
        fleet.policy.write_text(POLICY.format(pause="true", fleet="75%"))
        uids = make_nodes(controlplane, NAMES)
        both = fleet.add_aggregators()
        for aggregator in both:
            aggregator.start()
        fleet.distribute_ca()
        with swarm(fleet, uids, HEALTHY, *both) as agents:
            agents.start()
            agents.set_reports(FAULTS)
            agents.wait_until_delivered()
            for aggregator in both:
                aggregator.ready()
                # A report that was on its way for too long marks nothing before the next heartbeat confirms it.
                aggregator.until(partial(_withholds_all, aggregator))
            yield Pair(fleet, agents, both)


def test_after_a_kill_of_the_leader_the_other_sets_the_remaining_marks(
    pair: Pair, controlplane: Cluster
) -> None:
    leader = pair.leader()
    # The other one reads the lease once a second.
    leader.until(lambda: {leader_of(item) for item in pair.both} == {leader.pod})
    with Watcher(controlplane) as watcher:
        # However late the kill comes, marks remain: the budget is only about half of the whole one until then.
        pair.resume(fleet="40%")
        leader.until(lambda: len(watcher.marked()) >= BUDGET // 10)
        leader.kill()
        killed = time.monotonic()
        pair.resume()
        count = len(watcher.marked())
        pair.other(leader).until(lambda: len(watcher.marked()) > count)
        print(f"{count} marked, next mark after {time.monotonic() - killed:.1f} s")
        leader.start()
        pair.agents.wait_until_delivered()
        pair.wait_until_settled(watcher)
        assert_marks_are_consistent(watcher.states)
        assert_charged_once(controlplane)


def test_a_suspended_leader_writes_no_more_and_a_restart_keeps_marks(
    pair: Pair, controlplane: Cluster
) -> None:
    leader = pair.leader()
    with Watcher(controlplane) as watcher:
        pair.resume()
        leader.until(lambda: len(watcher.marked()) >= BUDGET // 4)
        leader.suspend()
        suspended = time.monotonic()
        try:
            pair.leader(other_than=leader)
            print(f"the other aggregator is active after {time.monotonic() - suspended:.1f} s")
            pair.other(leader).until(lambda: len(watcher.marked()) >= BUDGET // 2)
        finally:
            print(f"half of the budget is marked after {time.monotonic() - suspended:.1f} s")
            leader.resume()
        leader.until(lambda: leader.metric("nodeguard_aggregator_leader") == 0)
        print(f"it has lost the lease after {time.monotonic() - suspended:.1f} s")
        pair.agents.wait_until_delivered()
        print(f"it has all reports after {time.monotonic() - suspended:.1f} s")
        pair.wait_until_settled(watcher)
        print(f"all is settled after {time.monotonic() - suspended:.1f} s")
        assert_marks_are_consistent(watcher.states)
        assert_charged_once(controlplane)
        restarted_aggregators_release_no_mark_of_a_stale_node(pair, watcher)


def restarted_aggregators_release_no_mark_of_a_stale_node(pair: Pair, watcher: Watcher) -> None:
    # So few nodes are stale, all of them marked, that the leader is active at once.
    stale = sorted(WORST)[:STALE]
    pair.agents.stop(stale)
    for aggregator in pair.both:
        aggregator.kill()
    first = len(watcher.states)
    for aggregator in pair.both:
        aggregator.start()
    pair.leader()
    pair.agents.wait_until_delivered()
    pair.wait_until_settled(watcher, unreported=len(stale))
    states = watcher.states[first:]
    assert [state for state in states if state.node in stale and not state.marks] == []
    assert max_marked(watcher.states) == BUDGET
    # Marks are released after their checks pass, and the next nodes get their share of the budget.
    pair.agents.set_reports(dict.fromkeys(stale, HEALTHY))
    pair.agents.start()
    pair.both[0].until(lambda: not watcher.marked().keys() & set(stale))
    pair.both[0].until(lambda: len(watcher.marked()) == BUDGET)
    assert watcher.marked().keys() == set(NAMES[FATAL - BUDGET - STALE : FATAL]) - set(stale)
    assert max_marked(watcher.states) == BUDGET


def leader_of(aggregator: Aggregator) -> str:
    """Return the leader that an aggregator reports; empty for none."""
    name: str = aggregator.query("/v1/status")["replica"]["leader"]
    return name


def assert_marks_are_consistent(states: list[NodeState]) -> None:
    """Assert that the budget was kept, no mark was removed, and no epoch wrote after a higher one."""
    assert max_marked(states) == BUDGET
    marked: set[str] = set()
    epoch = 0
    for state in states:
        assert state.marks or state.node not in marked, f"the mark of {state.node} was removed"
        if state.marks and state.node not in marked:
            assert state.epoch >= epoch, f"{state.node} was marked under epoch {state.epoch}, after {epoch}"
            epoch = state.epoch
            marked.add(state.node)


def assert_charged_once(cluster: Cluster) -> None:
    """Assert that each marked node is charged to the budget once."""
    for node in cluster.api.get("/api/v1/nodes")["items"]:
        text = node["metadata"].get("annotations", {}).get(STATE_ANNOTATION, "")
        record = decode_record(text)
        assert record is not None
        assert (record.charge is not None) == (node["metadata"]["name"] in WORST)
        assert not record.past_charges
        assert len(record.causes) == (1 if text else 0), json.loads(text)
