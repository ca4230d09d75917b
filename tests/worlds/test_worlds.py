"""Random worlds: the invariants hold in each of them, and the worlds reach what they are for."""

from __future__ import annotations

import pytest

from tests.worlds.campaign import run_campaign, run_world
from tests.worlds.history import History, Step, random_history
from tests.worlds.taints import taints_of, withheld_domain_taints

# Four times as many as the defects of test_mutations.py need; bench/worlds.py runs as many as it is asked for.
WORLDS, PARTS = 300, 2

# Situations that some world of every part reaches: without them, the invariants would hold of nothing.
SITUATIONS = (
    "+ quarantine", "- quarantine", "+ suspect", "- suspect", "+ domain-degraded", "- domain-degraded",
    "released proven", "released superseded", "released preempted", "released domain", "decision withheld",
    "decision pending", "decision dry-run", "decision open", "domain marked",
    "domain withheld", "domain dry-run", "suppressed", "frozen", "stale", "restart", "crash", "clock", "delete",
    "inject", "create", "relabel", "policy", "forge", "refused", "device rule", "drain", "blocked drain",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_invariants_hold_in_every_world(part: int) -> None:
    worlds = WORLDS // PARTS
    campaign = run_campaign(part * worlds, worlds)
    assert not campaign.failures, "\n\n".join(map(str, campaign.failures))
    assert campaign.counts["worlds"] == worlds
    assert [name for name in SITUATIONS if not campaign.counts[name]] == []


def test_a_seed_has_one_history_and_one_outcome() -> None:
    assert random_history(3) == random_history(3)
    assert random_history(3) != random_history(4)
    assert run_campaign(3, 1).counts == run_campaign(3, 1).counts


def test_a_suppressed_check_of_a_few_nodes_does_not_hide_another_that_fires_widely() -> None:
    both = (0, 5, 6, 7, 8)
    steps = (
        Step("fault", (*both, 12, 14, 16, 17, 19, 21, 23, 26, 28, 33, 35), "driver-broken"),
        Step("forge", both, "unfamiliar checks"),
    )
    world = run_world(History(40, 6, 900.0, (), (), steps))
    assert taints_of(world) == set()
    assert world.counts["released retracted"] > 0


def test_a_restart_keeps_a_domain_with_silent_nodes_that_a_hold_left_unmarked() -> None:
    steps = Step("hold", (13, 14)), Step("silent", (12, 13, 14))
    world = run_world(History(32, 6, 900.0, ("marks of leaves",), (), steps))
    assert {key for _, key, _ in taints_of(world)} == {"domain-degraded"}


def test_a_restart_does_not_end_a_suppression_on_nodes_that_are_silent() -> None:
    steps = (
        Step("fault", (2, 5, 6, 9, 11, 16, 17, 19), "port-flap"),
        Step("silent", (*range(5), *range(8, 11), *range(13, 16), 17, 19, 22, 23)),
        Step("silent", (6, 7, *range(13, 18), *range(19, 22)), "with its kubelet"),
    )
    assert taints_of(run_world(History(24, 6, 900.0, (), (), steps))) == set()


def test_after_a_restart_the_mark_of_a_part_is_not_one_of_the_withheld_domain_around_it() -> None:
    steps = (
        Step("silent", (11, 12, 13), "with its kubelet", 8_000.0),
        Step("fault", (14, 15), "port-down", 1.0),
        Step("fault", (0, 1, 2, 3), "port-down", 1.0),
        Step("silent", (0, 1, 2, 3), "", 120.0),
        Step("create", (0,), "", 1.0),
    )
    world = run_world(History(16, 8, 900.0, ("medium budgets", "marks of domains"), (), steps))
    quarantined = {node for node, key, _ in taints_of(world) if key == "quarantine"}
    assert quarantined == {"node-14", "node-15"}


def test_after_a_restart_the_budget_may_mark_another_of_two_degraded_domains() -> None:
    steps = (
        Step("silent", tuple(range(8, 14)), "with its kubelet", 60.0),
        Step("crash", (), "", 5.0),
        Step("silent", tuple(range(24, 28)), "", 20.0),
        Step("wait", seconds=700.0),
    )
    world = run_world(History(60, 8, 900.0, ("marks of domains",), (), steps))
    marked, withheld = taints_of(world), withheld_domain_taints(world)
    assert {name for name, _, _ in marked} == {f"node-{number}" for number in range(8, 16)}
    assert {name for name, _, _ in withheld} == {f"node-{number}" for number in range(24, 32)}


def test_a_check_is_suppressed_when_the_votes_of_another_affect_one_domain_too_many() -> None:
    steps = (
        Step("fault", (0, 1, 3, 9, 11, *range(15, 19), 23), "gpu-hot"),
        Step("escalate", (10,), "gpu-warm"),
        Step("crash"),
        Step("fault", (11,), "port-flap"),
    )
    world = run_world(History(24, 8, 900.0, (), (), steps))
    assert taints_of(world) == {("node-10", "quarantine", "gpu-warm"), ("node-11", "suspect", "port-flap")}


def test_a_jump_of_the_clock_does_not_end_a_suppression_at_the_next_restart() -> None:
    steps = (
        Step("late", tuple(range(5)), "", 8_000.0),
        Step("clock", (), "-3600", 16_000.0),
        Step("restart", (), "", 8_000.0),
        Step("clock", (), "86400"),
    )
    assert taints_of(run_world(History(16, 8, 900.0, (), (), steps))) == set()


def test_a_suspect_node_is_not_quarantined_beyond_the_budget() -> None:
    steps = (
        Step("fault", (4, 5, 6), "driver-broken"),
        Step("inject", (0,), "gpu-hot", 60.0),
        Step("cordon", (4, 6), "", 400.0),
        Step("uncordon", (4, 5, 6)),
        Step("inject", (0,), "site-probe"),
    )
    world = run_world(History(8, 4, 900.0, ("medium budgets",), (), steps))
    assert ("node-0", "suspect", "gpu-hot") in taints_of(world)


def test_agents_that_announced_their_end_do_not_vote_after_a_restart() -> None:
    steps = Step("fault", (16, 17, 18), "gpu-warm"), Step("leave", (16, 17, 18))
    options = "marks of domains", "medium budgets"
    world = run_world(History(32, 8, 900.0, options, (), steps))
    assert {value for _, _, value in taints_of(world)} == {"rack"}


def test_the_mark_of_a_leaf_stays_when_its_pod_degrades_after_the_topology_is_no_longer_enforced() -> None:
    steps = (
        # So many that the pod explains them less well: the leaf is marked before the pod is degraded.
        Step("fault", (8, 9, 10, 11, 12, 13), "port-flap", 120.0),
        Step("fault", (0, 1, 4), "port-flap"),
        Step("policy", (), "marks of domains"),
    )
    world = run_world(History(24, 8, 900.0, ("medium budgets", "marks of domains"), (), steps))
    assert {node for node, _, value in taints_of(world) if value == "fabric"} == {
        f"node-{n}" for n in range(8, 16)
    }


def test_a_restart_prefers_the_older_of_two_degraded_domains_though_a_hold_left_it_unmarked() -> None:
    steps = (
        Step("hold", (6, 7, 8)),
        Step("fault", (6, 7, 8), "gpu-hot", 8_000.0),
        Step("fault", (0, 1, 2), "gpu-warm"),
    )
    assert taints_of(run_world(History(24, 6, 5.0, ("marks of domains",), (), steps))) == set()


def test_a_restart_does_not_end_a_freeze_by_agents_that_were_stale_for_long() -> None:
    steps = (
        Step("silent", (49, 50), "", 2_000.0),
        Step("silent", (32, 33, 52, 53, 54), "with its kubelet"),
        Step("fault", (14,), "port-flap"),
    )
    assert taints_of(run_world(History(60, 4, 900.0, (), (), steps))) == set()
