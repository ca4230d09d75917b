from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from itertools import combinations
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

import bench.evaluation
from bench.evaluation.oracle import NO_CAUSE, Causes, Posterior, posterior
from bench.evaluation.oracle_model import (
    CandidateCause,
    DelayQuantiles,
    Explanation,
    NodeVote,
    Observed,
    UsualVotes,
)

# One vote of a node in ten days, in a day of observation; a cause shows within 10 s.
DAY = 86_400.0
RATE = 0.1 / DAY
DELAY = DelayQuantiles(tuple(10.0 * part / 24 for part in range(25)))
CHECK = "port-down"


def domains(name: str, size: int, nodes: int = 32, parents: int = 16) -> tuple[CandidateCause, ...]:
    return tuple(
        CandidateCause(f"{name}{first // size}", frozenset(range(first, first + size)), str(first // parents))
        for first in range(0, nodes, size)
    )


LEAVES, PODS = domains("leaf", 4), domains("pod", 16)


def kind(candidates: tuple[CandidateCause, ...], share: float = 0.9, check: str = CHECK) -> Explanation:
    return Explanation(
        name="kind", group="domain", check=check, prior=0.1, onset=DELAY, report=DELAY, shares=(share,),
        candidates=candidates,
    )  # fmt: skip


PAIRS = replace(kind(LEAVES), count=2, parents="one")


def observed(votes: Iterable[tuple[int, float]], check: str = CHECK, until: float = DAY) -> Observed:
    return Observed(0.0, until, {check: {node: [NodeVote(at, at)] for node, at in votes}})


def find(seen: Observed, kinds: Sequence[Explanation], usual: UsualVotes | None = None) -> Posterior:
    return posterior(seen, {CHECK: usual or UsualVotes(RATE)}, kinds, 1.0 - 0.1 * len(kinds))


def causes(*candidates: CandidateCause) -> Causes:
    return frozenset(("domain", candidate.members) for candidate in candidates)


def odds(found: Posterior, candidate: CandidateCause) -> float:
    return found.of(causes(candidate)) / found.probabilities[NO_CAUSE]


def test_one_vote_of_one_node_by_hand() -> None:
    # The share of the day in which the cause starts, times the density of 1 / 10 s, against the rate of 0.1.
    node = CandidateCause("node", frozenset({7}))
    found = find(observed([(7, 40_000.0)]), [kind((node,), share=0.5)])
    assert odds(found, node) == pytest.approx(0.1 / 0.9 * (0.5 / (RATE * DAY) + 0.5), rel=0.05)


def test_known_starts_by_hand() -> None:
    # A version on four nodes, of which two show it at once: (0.5 / 10 s / rate)² for these, 0.5² for the others.
    version = CandidateCause("v", frozenset(range(4)), starts=dict.fromkeys(range(4), 50_000.0))
    found = find(observed([(0, 50_004.0), (1, 50_005.0)]), [kind((version,), share=0.5)])
    assert odds(found, version) == pytest.approx(0.1 / 0.9 * (0.05 / RATE) ** 2 * 0.25, rel=0.1)


def test_two_jobs_with_shared_nodes_by_hand() -> None:
    # Both explain the two votes; the larger job has four more nodes that did not fail, each by 1 - 0.5.
    small, large = (
        CandidateCause(name, frozenset(range(size)), starts=dict.fromkeys(range(size), 50_000.0))
        for name, size in (("small", 3), ("large", 7))
    )
    found = find(observed([(0, 50_004.0), (1, 50_005.0)]), [kind((small, large), share=0.5)])
    assert odds(found, small) / odds(found, large) == pytest.approx(0.5**-4, rel=0.01)


def test_the_factor_of_a_cluster_by_hand() -> None:
    # The factor g of four nodes with two votes in 0.4 expected ones has a Gamma distribution with the shape
    # 1.5 + 2 and the rate 1.5 + 0.4, so that the mean of g ** -2 is 1.9² / (2.5 * 1.5).
    version = CandidateCause("v", frozenset(range(4)), starts=dict.fromkeys(range(4), 50_000.0))
    votes = observed([(0, 50_004.0), (1, 50_005.0)])
    kinds = [kind((version,), share=0.5)]
    uneven = UsualVotes(RATE, (version.members,), shape=1.5)
    ratio = odds(find(votes, kinds, uneven), version) / odds(find(votes, kinds), version)
    assert ratio == pytest.approx(1.9**2 / (2.5 * 1.5), rel=0.01)


def test_a_leaf_that_fails() -> None:
    found = find(observed([(node, 40_000.0 + node) for node in range(4)]), [kind(LEAVES), kind(PODS), PAIRS])
    assert found.decides(causes(LEAVES[0]))
    assert found.likeliest == causes(LEAVES[0])
    assert sum(found.probabilities.values()) + found.hidden == pytest.approx(1.0)


def test_two_leaves_are_not_their_pod() -> None:
    votes = observed([(node, 40_000.0 + node % 4) for node in range(8)])
    assert find(votes, [kind(LEAVES), kind(PODS), PAIRS]).decides(causes(LEAVES[0], LEAVES[1]))


def test_a_pod_is_not_two_of_its_leaves() -> None:
    votes = observed([(node, 40_000.0 + node % 4) for node in range(15)])
    assert find(votes, [kind(LEAVES), kind(PODS), PAIRS]).decides(causes(PODS[0]))


def test_votes_at_different_times_have_no_cause() -> None:
    votes = observed([(node, 20_000.0 * (node + 1)) for node in range(4)])
    assert find(votes, [kind(LEAVES), kind(PODS)]).decides(NO_CAUSE)


def test_a_fault_that_may_not_show_yet_is_not_excluded() -> None:
    early = DAY - 4.0
    at_once = observed([(0, early), (1, early)])
    later = observed([(0, early), (1, early)], until=DAY + 60.0)
    leaf = LEAVES[0]
    assert odds(find(at_once, [kind(LEAVES)]), leaf) > 5 * odds(find(later, [kind(LEAVES)]), leaf)


def test_a_node_on_which_the_check_fires_already_says_nothing() -> None:
    votes = {node: [NodeVote(40_000.0 + node)] for node in range(2)}
    firing = {2: [NodeVote(100.0)], 3: [NodeVote(9_000.0)]}
    cleared = {2: [NodeVote(100.0, 200.0)], 3: [NodeVote(9_000.0, 9_100.0)]}
    leaf = LEAVES[0]
    with_firing = find(Observed(0.0, DAY, {CHECK: votes | firing}), [kind(LEAVES)])
    with_cleared = find(Observed(0.0, DAY, {CHECK: votes | cleared}), [kind(LEAVES)])
    assert odds(with_firing, leaf) > 50 * odds(with_cleared, leaf)


def test_a_domain_with_many_usual_votes_needs_more() -> None:
    votes = observed([(0, 40_000.0), (1, 40_003.0), (2, 40_006.0)])
    clusters = tuple(leaf.members for leaf in LEAVES)
    even, uneven = (find(votes, [kind(LEAVES)], UsualVotes(RATE, clusters, shape)) for shape in (30.0, 0.3))
    leaf = LEAVES[0]
    assert odds(find(votes, [kind(LEAVES)]), leaf) > odds(even, leaf) > 2 * odds(uneven, leaf)


def test_a_vote_at_the_start_of_a_job_is_weak() -> None:
    times = [(0, 40_000.0), (1, 40_003.0), (2, 40_006.0)]
    surges = {node: [NodeVote(at, surge=0.025 / 120)] for node, at in times}
    in_surge = find(Observed(0.0, DAY, {CHECK: surges}), [kind(LEAVES)])
    assert odds(find(observed(times), [kind(LEAVES)]), LEAVES[0]) > 1000 * odds(in_surge, LEAVES[0])


def test_a_node_without_a_label_may_belong_to_the_leaf() -> None:
    nodes = frozenset({0, 1, 2})
    leaf, other = CandidateCause("leaf0", nodes), CandidateCause("leaf1", frozenset(range(4, 32)))
    votes = observed([(node, 40_000.0 + node) for node in range(4)])
    labelled = kind((leaf, other))
    unlabelled = replace(labelled, unlabelled=frozenset({3}), nodes=32)
    assert odds(find(votes, [unlabelled]), leaf) > 100 * odds(find(votes, [labelled]), leaf)


def test_domains_with_the_same_nodes_are_one() -> None:
    racks = tuple(replace(leaf, name=leaf.name.replace("leaf", "rack")) for leaf in LEAVES)
    found = find(observed([(node, 40_000.0 + node) for node in range(4)]), [kind(LEAVES), kind(racks)])
    assert found.decides(causes(LEAVES[0]))


def test_a_certain_cause_is_right() -> None:
    certain = right = likely = 0
    expected = 0.0
    for seed in range(300):
        seen, usual, kinds, truth = random_case(seed)
        found = posterior(seen, usual, kinds, 0.2)
        best = found.likeliest
        if found.decides(best):
            certain += 1
            right += best == truth
        elif found.of(best) >= 0.5:
            likely += best == truth
            expected += found.of(best)
    assert certain > 120
    assert right / certain > 0.98
    assert likely == pytest.approx(expected, rel=0.15)


def random_case(
    seed: int,
) -> tuple[Observed, dict[str, UsualVotes], list[Explanation], Causes]:
    """Return what is observed of a random fleet with at most one cause, and the cause if it shows."""
    chance = Random(seed)
    nodes, leaf = chance.choice((32, 64, 128)), chance.choice((4, 8, 16))
    pod, rack = leaf * chance.choice((3, 4)), chance.choice((5, 6, 10))
    until, spread = chance.choice((1.0, 6.0)) * 3600.0, chance.choice((5.0, 60.0, 600.0, 1800.0))
    share, shape = chance.choice((0.3, 0.5, 0.8, 1.0)), chance.choice((0.5, 1.0, 3.0, 30.0))
    rate = 10.0 ** chance.uniform(-2.5, 0.0) / DAY
    leaves, racks = domains("leaf", leaf, nodes, pod), domains("rack", rack, nodes)
    usual = {
        CHECK: UsualVotes(rate, tuple(domain.members for domain in leaves), shape),
        "hot": UsualVotes(3.0 * rate, tuple(domain.members for domain in racks), shape),
    }
    delay = DelayQuantiles.of(spread * index / 100 for index in range(101))
    single, pods = kind(leaves, share), kind(domains("pod", pod, nodes), share)
    kinds = [single, pods, replace(single, count=2, parents="one"), kind(racks, share, "hot")]
    kinds = [replace(item, prior=0.2, onset=delay, report=delay) for item in kinds]
    votes: dict[str, dict[int, list[NodeVote]]] = {CHECK: {}, "hot": {}}
    for check, item in usual.items():
        for cluster in item.clusters:
            mean = item.rate * chance.gammavariate(shape, 1.0 / shape)
            for node in cluster:
                at = chance.expovariate(mean)
                while at < until:
                    votes[check].setdefault(node, []).append(NodeVote(at, at))
                    at += chance.expovariate(mean)
    planted = chance.choice([None, *kinds])
    failing: tuple[CandidateCause, ...] = ()
    if planted is not None:
        sets = combinations(planted.candidates, planted.count)
        failing = chance.choice(
            [items for items in sets if planted.count == 1 or items[0].parent == items[1].parent]
        )
        start = chance.uniform(0.0, until)
        shown = False
        for node in frozenset[int]().union(*(item.members for item in failing)):
            at = start + chance.uniform(0.0, spread)
            if chance.random() < share and at < until:
                votes[planted.check].setdefault(node, []).append(NodeVote(at, at))
                shown = True
        failing = failing if shown else ()
    return Observed(0.0, until, votes), usual, kinds, causes(*failing)


@pytest.mark.parametrize(
    "module",
    ["oracle", "oracle_model", "oracle_votes", "oracle_likelihood", "oracle_world", "oracle_courses"],
)
def test_the_oracle_imports_nothing_of_the_product(module: str) -> None:
    source = Path(bench.evaluation.__file__).with_name(f"{module}.py").read_text()
    imported = [node.module or "" for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)]
    assert imported
    assert not any(name.startswith("nodeguard") for name in imported)
