"""Tests for nodeguard.fleet.diagnosis.suspected_checks."""

from __future__ import annotations

import random

from nodeguard.fleet.diagnosis.results import Candidate
from nodeguard.fleet.diagnosis.suspected_checks import are_everywhere, are_likelier, unexplained_firings
from nodeguard.fleet.diagnosis.vote_index import VoteIndex
from nodeguard.fleet.state.topology.members import DomainMembers
from tests.policies import diagnosis_policy

DAY = 86_400.0


def members_of(leaves: int, size: int) -> DomainMembers:
    """Return the nodes of a fleet of equal leaves."""
    members = DomainMembers()
    for leaf in range(leaves):
        for node in range(size):
            members.set_domains(f"{leaf}-{node}", (f"fabric/p{leaf // 4}/l{leaf}",))
    return members


def candidates_of(members: DomainMembers, leaves: int, size: int, firing: set[str]) -> list[Candidate]:
    """Return the leaves of which most nodes fire."""
    voters = {leaf: {f"{leaf}-{node}" for node in range(size)} & firing for leaf in range(leaves)}
    return [
        Candidate("silent", f"fabric/p{leaf // 4}/l{leaf}", 120.0, dict.fromkeys(sorted(own), 1.0), size)
        for leaf, own in voters.items()
        if 2 * len(own) > size
    ]


def test_three_dead_leaves_are_likelier_than_one_cause_of_the_fleet() -> None:
    members = members_of(16, 8)
    firing = {f"{leaf}-{node}" for leaf in (0, 5, 10) for node in range(7)}
    assert are_likelier(candidates_of(members, 16, 8, firing), firing, members)


def test_one_cause_of_the_fleet_is_likelier_than_faults_of_most_small_leaves() -> None:
    """Of leaves of three nodes, most have two that fire, if a fault of 65% of all nodes strikes at random."""
    members = members_of(200, 3)
    nodes = sorted(f"{leaf}-{node}" for leaf in range(200) for node in range(3))
    firing = set(random.Random(1).sample(nodes, 390))
    candidates = candidates_of(members, 200, 3, firing)
    explained = set[str]().union(*(candidate.voters for candidate in candidates))
    assert len(explained) > 0.8 * len(firing)
    assert not are_likelier(candidates, firing, members)


def test_a_domain_with_80_percent_of_the_fleet_leaves_enough_clean_nodes() -> None:
    members = members_of(5, 2)
    voters = dict.fromkeys(sorted(members.nodes("fabric/p0")), 1.0)
    candidates = [Candidate("silent", "fabric/p0", 120.0, voters, len(voters))]
    assert (len(voters), len(members)) == (8, 10)
    assert not are_everywhere(candidates, members)
    members.remove("4-0")
    assert are_everywhere(candidates, members)


def test_three_leaves_with_80_percent_of_the_fleet_may_all_be_dead() -> None:
    """With one clean node less, nothing distinguishes them from a false alarm of the whole fleet."""
    votes = VoteIndex(diagnosis_policy())
    votes.begin(-10 * DAY)
    for node in range(30):
        votes.set_domains(str(node), (f"fabric/p{node // 8}/leaf",))
    for node in range(24):
        assert votes.record_firing(str(node), "port-down", 1.0)
        votes.vote(str(node), "port-down", ("fabric",), 1.0)
    paths = (f"fabric/p{pod}/leaf" for pod in range(3))
    candidates = [
        Candidate("link-down", path, 120.0, dict.fromkeys(votes.members.nodes(path), 1.0), 8)
        for path in paths
    ]

    def is_suspected() -> bool:
        return unexplained_firings("port-down", votes, candidates, set(), 20.0) is not None

    assert not is_suspected()
    votes.remove_node("29")
    assert is_suspected()
