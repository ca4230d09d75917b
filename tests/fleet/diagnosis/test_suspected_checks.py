"""Tests for nodeguard.fleet.diagnosis.suspected_checks."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping

import pytest

from nodeguard.fleet.diagnosis.results import Candidate
from nodeguard.fleet.diagnosis.suspected_checks import unexplained_firings
from nodeguard.fleet.diagnosis.vote_index import VoteIndex
from tests.policies import diagnosis_policy

DAY = 86_400.0

# Nodes of a fleet, by leaf: `fabric/p0/l3`, numbered.
Leaves = Mapping[str, int]


def suspected(leaves: Leaves, firing: Iterable[str], *degrading: str, is_new: bool = False) -> bool:
    """Return whether `port-down` is suspected that fires on some nodes at once, `POD/LEAF/NUMBER`. degrading:
    leaves that are candidates. is_new: whether all nodes have just received another catalogue.
    """
    votes = VoteIndex(diagnosis_policy())
    votes.begin(-10 * DAY)
    for path, size in leaves.items():
        for number in range(size):
            uid = f"{path}/{number}"
            votes.set_domains(uid, (f"fabric/{path}", "catalogue/2") if path else ("catalogue/2",))
            votes.record_versions(uid, ("catalogue/1",), {}, -DAY)
            votes.record_versions(uid, (f"catalogue/{1 + is_new}",), {}, 0.0)
    for uid in firing:
        assert votes.record_firing(uid, "port-down", 1.0)
        votes.vote(uid, "port-down", 1.0, ("fabric",))
    candidates = []
    for path in degrading:
        own = votes.votes_by_class["link-down"].voters(f"fabric/{path}", 20.0, 120.0)
        candidates.append(Candidate("link-down", f"fabric/{path}", 120.0, own, leaves[path]))
    return unexplained_firings("port-down", votes, candidates, set(), 20.0) is not None


def nodes(*parts: tuple[str, int]) -> list[str]:
    """Return the first nodes of some leaves: so many of each."""
    return [f"{path}/{number}" for path, count in parts for number in range(count)]


def leaves_of(pods: int, leaves: int, size: int) -> dict[str, int]:
    """Return a fleet of equal leaves."""
    return {f"p{pod}/l{leaf}": size for pod in range(pods) for leaf in range(leaves)}


@pytest.mark.parametrize("sizes", [(51, 51, 18), (45, 45, 16, 7)])
def test_a_fleet_of_a_few_large_leaves_may_have_a_false_alarm(sizes: tuple[int, ...]) -> None:
    """Few of the nodes of each leaf fire, in more than one."""
    leaves = {f"p0/l{number}": size for number, size in enumerate(sizes)}
    firing = nodes(("p0/l0", 5), ("p0/l1", 4))
    assert suspected(leaves, firing)
    assert not suspected(leaves, nodes(("p0/l0", 9)))


def test_a_false_alarm_may_have_half_of_a_small_leaf() -> None:
    """Nine of 90 nodes: three of one leaf, and two of two others."""
    leaves = leaves_of(3, 5, 6)
    firing = nodes(("p2/l1", 3), ("p1/l0", 2), ("p0/l2", 2), ("p1/l3", 1), ("p2/l3", 1))
    assert suspected(leaves, firing, "p2/l1")
    assert not suspected(leaves, nodes(("p2/l1", 3), ("p1/l3", 1)), "p2/l1")


def test_domains_with_nearly_all_nodes_that_have_a_location_explain_no_false_alarm() -> None:
    leaves = {"p0/l0": 81, "p1/l0": 7, "": 25}
    firing = nodes(("p0/l0", 56), ("p1/l0", 4), ("", 16))
    assert suspected(leaves, firing, "p0/l0", "p1/l0")
    assert not suspected({**leaves, "p2/l0": 25}, firing, "p0/l0", "p1/l0")


def test_few_nodes_with_a_new_catalogue_may_be_in_one_pod_but_not_in_one_leaf() -> None:
    leaves = leaves_of(2, 4, 32)
    in_one_pod = [f"p0/l{leaf}/0" for leaf in range(3)]
    assert suspected(leaves, in_one_pod, is_new=True)
    assert not suspected(leaves, in_one_pod)
    assert not suspected(leaves, nodes(("p0/l0", 3)), is_new=True)


def test_dead_leaves_explain_their_nodes() -> None:
    leaves = leaves_of(4, 4, 8)
    dead = ("p0/l0", "p1/l1", "p2/l2")
    firing = nodes(*((path, 7) for path in dead))
    assert not suspected(leaves, firing, *dead)
    others = nodes(*((path, 1) for path in leaves if path not in dead))
    assert suspected(leaves, [*firing, *others], *dead)


def test_a_leaf_may_be_dead_during_a_false_alarm() -> None:
    leaves = leaves_of(8, 8, 8)
    others = [f"p{pod}/l{pod}/3" for pod in range(1, 6)]
    assert suspected(leaves, [*nodes(("p0/l0", 8)), *others], "p0/l0")
    assert not suspected(leaves, [*nodes(("p0/l0", 8)), *others[:4]], "p0/l0")


def test_nodes_of_a_dead_leaf_may_have_the_label_of_another_place() -> None:
    leaves = leaves_of(8, 2, 72)
    astray = [f"p{pod}/l1/3" for pod in range(1, 8)]
    firing = nodes(("p0/l0", 64))
    assert not suspected(leaves, [*firing, *astray], "p0/l0")


def test_nodes_without_a_location_may_be_in_the_dead_leaf() -> None:
    leaves = leaves_of(4, 4, 8) | {"": 16}
    assert not suspected(leaves, nodes(("p0/l0", 8), ("", 6)), "p0/l0")
    assert suspected(leaves, nodes(("p0/l0", 2), ("", 12)))


def test_one_cause_of_the_fleet_is_likelier_than_faults_of_most_small_leaves() -> None:
    """Of leaves of three nodes, most have two that fire, if a fault of 65% of all nodes strikes at random."""
    leaves = leaves_of(50, 4, 3)
    firing = random.Random(1).sample(nodes(*leaves.items()), 390)
    affected = [path for path in leaves if sum(uid.startswith(f"{path}/") for uid in firing) > 1]
    assert len(affected) > 100
    assert suspected(leaves, firing, *affected)


def test_a_domain_with_80_percent_of_the_fleet_leaves_enough_clean_nodes() -> None:
    firing = nodes(*((f"p0/l{leaf}", 2) for leaf in range(4)))
    leaves = leaves_of(1, 4, 2)
    assert not suspected(leaves | {"p1/l0": 2}, firing)
    assert suspected(leaves | {"p1/l0": 1}, firing)


def test_dead_leaves_need_clean_nodes_elsewhere() -> None:
    """With hardly any, nothing distinguishes them from a false alarm of the whole fleet."""
    leaves = {"p0/l0": 8, "p1/l1": 8, "p2/l2": 8}
    firing = nodes(*leaves.items())
    assert not suspected(leaves | {"p3/l3": 6}, firing, *leaves)
    assert suspected(leaves | {"p3/l3": 2}, firing, *leaves)
