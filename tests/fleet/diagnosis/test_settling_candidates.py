"""Tests for nodeguard.fleet.diagnosis.settling_candidates: candidates beside domains that are degraded already."""

from __future__ import annotations

from nodeguard.model.diagnosis import STALE_CHECK
from tests.fleet.diagnosis.scene import LEAVES, Voters


def cordon(fleet: Voters, *uids: str) -> None:
    """Have nodes not vote any more; their labels stay."""
    for uid in uids:
        fleet.diagnosis.voting.set_domains(uid, ())
    fleet.diagnosis.voting.has_changed = True


class SmallPod:
    """A fleet in which two of the four leaves of a small pod are degraded. leaves: their nodes."""

    def __init__(self) -> None:
        self.fleet = Voters()
        nodes = self.fleet.nodes[:28]
        self.leaves = [nodes[first : first + 7] for first in range(0, 28, 7)]
        for number, leaf in enumerate(self.leaves):
            for uid in leaf:
                paths = [path for path in self.fleet.members.paths(uid) if not path.startswith("fabric/")]
                self.fleet.move(uid, *paths, f"fabric/small/l{number}")
        self.fleet.show([*self.leaves[0][:5], *self.leaves[1][:4]])
        self.fleet.after(60.0)
        assert self.fleet.degraded == ["fabric/small/l0", "fabric/small/l1"]
        self.fleet.show([*self.leaves[0][5:], *self.leaves[1][4:]])


def test_degraded_leaves_do_not_become_their_pod_while_their_votes_leave_the_window() -> None:
    fleet = SmallPod().fleet
    fleet.after(600.0)
    assert fleet.degraded == ["fabric/small/l0", "fabric/small/l1"]


def test_degraded_leaves_do_not_become_their_pod_when_its_healthy_leaves_are_cordoned() -> None:
    pod = SmallPod()
    cordon(pod.fleet, *pod.leaves[2], *pod.leaves[3])
    pod.fleet.after(600.0)
    assert pod.fleet.degraded == ["fabric/small/l0", "fabric/small/l1"]


def test_degraded_leaves_become_their_pod_with_votes_in_its_other_leaves() -> None:
    pod = SmallPod()
    pod.fleet.show([*pod.leaves[2][:4], *pod.leaves[3][:4]])
    pod.fleet.after(60.0)
    assert pod.fleet.degraded == ["fabric/small"]


def test_a_degraded_domain_explains_the_votes_of_its_nodes_that_are_cordoned_later() -> None:
    fleet = Voters()
    pod = [uid for leaf in range(LEAVES) for uid in fleet.leaf(0, leaf)]
    of_feed = pod[:5]
    for uid in pod:
        paths = [path for path in fleet.members.paths(uid) if not path.startswith("power/")]
        fleet.move(uid, *paths, "power/feed9" if uid in of_feed else "power/feed8")
    fleet.show(pod[:100], STALE_CHECK)
    fleet.after(3_600.0)
    assert fleet.degraded == ["fabric/p0"]
    cordon(fleet, *of_feed[:3])
    fleet.after(600.0)
    assert fleet.degraded == ["fabric/p0"]
