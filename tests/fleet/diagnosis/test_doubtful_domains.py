"""Tests for nodeguard.fleet.diagnosis.doubtful_domains: a false alarm that reaches one domain first."""

from __future__ import annotations

import random

from tests.fleet.diagnosis.scene import Voters

LEAF = "fabric/p1/l3"


class DegradedLeaf(Voters):
    """A fleet of 256 nodes in which a check fired on two other nodes, then on some of one leaf."""

    def __init__(self, voters: int = 3) -> None:
        super().__init__(pods=2)
        self.show(["0-0-0", "1-6-1", *self.leaf(1, 3, voters)], every=10.0)
        self.after(600.0)
        assert self.degraded == [LEAF]

    def spread(self) -> None:
        """Fire the check on a third of the nodes, in the whole fleet."""
        self.show(random.Random(1).sample(self.nodes, 85), every=30.0)
        self.after(60.0)


def test_a_false_alarm_that_spreads_on_replaces_the_leaf_that_it_reached_first() -> None:
    fleet = DegradedLeaf()
    fleet.spread()
    assert (fleet.degraded, fleet.suppressed) == ([], {"port-down": ""})


def test_a_leaf_that_was_dead_before_a_false_alarm_stays_degraded() -> None:
    fleet = DegradedLeaf(voters=15)
    fleet.spread()
    assert (fleet.degraded, fleet.suppressed) == ([LEAF], {"port-down": ""})


def test_a_leaf_with_another_check_stays_degraded_during_a_false_alarm() -> None:
    fleet = DegradedLeaf()
    fleet.show(fleet.leaf(1, 3, 3), "port-link-downed")
    fleet.spread()
    assert (fleet.degraded, fleet.suppressed) == ([LEAF], {"port-down": ""})


def test_a_second_leaf_that_dies_does_not_make_the_first_a_false_alarm() -> None:
    fleet = DegradedLeaf(voters=15)
    fleet.show(fleet.leaf(0, 2))
    fleet.after(600.0)
    assert (fleet.degraded, fleet.suppressed) == (["fabric/p0/l2", LEAF], {})


def test_a_fleet_of_two_leaves_may_lose_both() -> None:
    fleet = Voters(pods=1)
    for uid in fleet.nodes[32:]:
        fleet.move(uid)
    for leaf in (0, 1):
        fleet.show(fleet.leaf(0, leaf, 15))
        fleet.after(1_200.0)
    assert (fleet.degraded, fleet.suppressed) == (["fabric/p0/l0", "fabric/p0/l1"], {})
