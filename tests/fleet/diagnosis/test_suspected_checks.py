"""Tests for nodeguard.fleet.diagnosis.suspected_checks."""

from __future__ import annotations

import random

from nodeguard.fleet.diagnosis.results import Candidate
from nodeguard.fleet.diagnosis.suspected_checks import are_likelier
from nodeguard.fleet.state.topology.members import DomainMembers


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
