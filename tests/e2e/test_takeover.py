"""Two aggregators, of which one leads: killed, frozen or begun anew at the worst moment, they mark what one that is
left alone would have marked, and never more than the budget.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from nodeguard.fleet.state.annotation_codec import decode_record
from nodeguard.model.mark import STATE_ANNOTATION
from tests.controlplane.cluster import Cluster
from tests.e2e.fleet import Aggregator, Fleet, fleet
from tests.e2e.minted import make_nodes
from tests.e2e.swarm import Swarm, fault, in_order, sick, swarm
from tests.e2e.watcher import State, Watcher, most

# So many that to mark what the budget has takes seconds, at 50 a second.
NODES, FATAL, BUDGET = 400, 300, 200

CHECKS = ("gpu-lost", "gpu-gsp-failure", "port-down")
HEALTHY = in_order(CHECKS)
NAMES = [f"gpu-{number:03}" for number in range(NODES)]

# Of each a minute longer than of the one before; the oldest are meant.
WORDS = {
    name: sick(HEALTHY, fault(CHECKS[place % 3], age=60.0 * place))
    for place, name in enumerate(NAMES[:FATAL])
}
WORST = set(NAMES[FATAL - BUDGET : FATAL])

POLICY = """
defaultMode: enforce
pause: {pause}
budget: {{fleet: 50%, fatalReserve: 0%, pool: 100%, perCheck: {{new: 1000, within: 10m, active: 1000}}}}
diagnosis: {{suppression: {{minNodes: 100000}}}}
gracePeriod: {{quarantine: 1s, suspect: 1s}}
soak: {{initial: 1s, max: 1s, resetAfter: 1m}}
"""
FIGURES = (
    'nodeguard_aggregator_marked_nodes{mark="quarantine"}',
    'nodeguard_aggregator_incidents{state="marked"}',
    'nodeguard_aggregator_incidents{state="withheld"}',
    'nodeguard_aggregator_budget_used_ratio{budget="fleet"}',
    'nodeguard_aggregator_nodes{health="fatal"}',
    'nodeguard_aggregator_nodes{health="ok"}',
)


class Pair:
    """Two aggregators that have heard a fleet; 300 of 400 nodes are sick, and new marks are paused."""

    def __init__(self, made: Fleet, agents: Swarm, both: list[Aggregator]) -> None:
        self.fleet, self.agents, self.both = made, agents, both

    def leading(self, but: Aggregator | None = None) -> Aggregator:
        """The one that leads, once one does that is another."""

        def found() -> list[Aggregator]:
            return [
                one for one in self.both if one is not but and one.figure("nodeguard_aggregator_active") == 1
            ]

        (leader,) = self.both[0].until(found)
        return leader

    def other(self, one: Aggregator) -> Aggregator:
        (other,) = [each for each in self.both if each is not one]
        return other

    def mark(self) -> None:
        """End the pause."""
        self.fleet.policy.write_text(POLICY.format(pause="false"))

    def rest(self, watcher: Watcher, unheard: int = 0) -> None:
        """Wait until all is marked that is to be; and no more is, and both say the same.

        unheard: how many of the sick have said nothing to either.
        """
        self.both[0].until(lambda: len(watcher.marked()) >= BUDGET)
        assert watcher.marked().keys() == WORST
        expected = [BUDGET, BUDGET, FATAL - BUDGET, 1.0, FATAL - unheard, NODES - FATAL]
        for one in self.both:
            one.until(lambda one=one: [one.figure(name) for name in FIGURES] == expected)  # type: ignore[misc]
        assert watcher.marked().keys() == WORST
        first, second = (self.answers(one) for one in self.both)
        assert first == second

    @staticmethod
    def answers(one: Aggregator) -> tuple[object, object]:
        """Return the nodes without the age of their last report, and the state of each incident."""
        incidents = one.asked("/v1/incidents")["incidents"]
        nodes = one.asked("/v1/nodes")["nodes"]
        for node in nodes:
            del node["last_report_age"]
        return nodes, {incident["name"]: incident["state"] for incident in incidents}


@pytest.fixture
def pair(controlplane: Cluster) -> Iterator[Pair]:
    with fleet(controlplane) as made:
        made.policy.write_text(POLICY.format(pause="true"))
        uids = make_nodes(controlplane, NAMES)
        both = made.aggregate()
        for one in both:
            one.start()
        made.trust()
        with swarm(made, uids, HEALTHY, *both) as agents:
            agents.speak()
            agents.say(WORDS)
            agents.heard()
            for one in both:
                one.ready()
            yield Pair(made, agents, both)


def test_what_a_killed_leader_began_another_ends(pair: Pair, controlplane: Cluster) -> None:
    leader = pair.leading()
    names = {one.asked("/v1/status")["replica"]["leader"] for one in pair.both}
    assert len(names) == 1
    assert names != {""}
    with Watcher(controlplane) as watcher:
        pair.mark()
        leader.until(lambda: len(watcher.marked()) >= BUDGET // 4)
        leader.kill()
        killed = time.monotonic()
        left = len(watcher.marked())
        assert left < BUDGET
        pair.other(leader).until(lambda: len(watcher.marked()) > left)
        print(f"{left} marked, and {time.monotonic() - killed:.1f} s until the next")
        leader.start()
        pair.agents.heard()
        pair.rest(watcher)
        check(watcher.states)
        once(controlplane)


def test_a_leader_that_was_frozen_writes_no_more(pair: Pair, controlplane: Cluster) -> None:
    leader = pair.leading()
    with Watcher(controlplane) as watcher:
        pair.mark()
        leader.until(lambda: len(watcher.marked()) >= BUDGET // 4)
        leader.freeze()
        frozen = time.monotonic()
        try:
            pair.leading(but=leader)
            print(f"another acts after {time.monotonic() - frozen:.1f} s")
            pair.other(leader).until(lambda: len(watcher.marked()) >= BUDGET // 2)
        finally:
            print(f"half is marked after {time.monotonic() - frozen:.1f} s")
            leader.thaw()
        leader.until(lambda: leader.figure("nodeguard_aggregator_leader") == 0)
        print(f"it knows after {time.monotonic() - frozen:.1f} s")
        pair.agents.heard()
        print(f"it has heard all after {time.monotonic() - frozen:.1f} s")
        pair.rest(watcher)
        print(f"all is marked and told after {time.monotonic() - frozen:.1f} s")
        check(watcher.states)
        once(controlplane)


def test_who_begins_anew_gives_nothing_back_that_it_hears_nothing_of(
    pair: Pair, controlplane: Cluster
) -> None:
    with Watcher(controlplane) as watcher:
        pair.mark()
        pair.rest(watcher)
        # Fewer than a tenth are silent, of which some are marked: who leads acts at once.
        gone = sorted(WORST)[:30]
        pair.agents.silence(gone)
        for one in pair.both:
            one.kill()
        came = len(watcher.states)
        for one in pair.both:
            one.start()
        pair.leading()
        pair.agents.heard()
        pair.rest(watcher, unheard=len(gone))
        assert [one for one in watcher.states[came:] if one.node in gone and not one.marks] == []
        assert most(watcher.states) == BUDGET
        # What is proven to be over is given back, and its share of the budget goes to the next.
        pair.agents.say(dict.fromkeys(gone, HEALTHY))
        pair.agents.speak()
        pair.both[0].until(lambda: not watcher.marked().keys() & set(gone))
        pair.both[0].until(lambda: len(watcher.marked()) == BUDGET)
        assert watcher.marked().keys() == set(NAMES[FATAL - BUDGET - 30 : FATAL]) - set(gone)
        assert most(watcher.states) == BUDGET


def check(states: list[State]) -> None:
    """At no moment more was marked than the budget has; no mark went; and under an epoch that was over none came."""
    assert most(states) == BUDGET
    marked: set[str] = set()
    epoch = 0
    for one in states:
        assert one.marks or one.node not in marked, f"the mark of {one.node} went"
        if one.marks and one.node not in marked:
            assert one.epoch >= epoch, f"{one.node} was marked under epoch {one.epoch}, after {epoch}"
            epoch = one.epoch
            marked.add(one.node)


def once(cluster: Cluster) -> None:
    """Each node that is marked is charged once."""
    for node in cluster.api.get("/api/v1/nodes")["items"]:
        text = node["metadata"].get("annotations", {}).get(STATE_ANNOTATION, "")
        record = decode_record(text)
        assert record is not None
        assert (record.charge is not None) == (node["metadata"]["name"] in WORST)
        assert not record.past_charges
        assert len(record.causes) == (1 if text else 0), json.loads(text)
