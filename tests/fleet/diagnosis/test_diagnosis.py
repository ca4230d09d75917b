"""Tests for nodeguard.fleet.diagnosis.diagnosis."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from nodeguard.fleet.diagnosis.results import DegradedDomain
from nodeguard.model.diagnosis import STALE_CHECK
from tests.fleet.diagnosis.scene import LEAVES, NODES, VIEWS, Voters
from tests.policies import diagnosis_policy


def test_a_failing_leaf_is_degraded_after_the_grace_period() -> None:
    fleet = Voters()
    fleet.show(fleet.leaf(1, 3, 14), every=1.0)
    assert fleet.degraded == []
    fleet.after(15.0)
    assert fleet.degraded == ["fabric/p1/l3"]
    [degraded] = fleet.diagnosis.degraded_domains.values()
    assert (degraded.fault_classes, degraded.size, degraded.siblings, degraded.elsewhere, degraded.times) == (
        ("link-down", "link"), 16, 7, 0, 1
    )  # fmt: skip
    assert degraded.voters == tuple(sorted(fleet.leaf(1, 3, 14)))
    assert fleet.suppressed == {}


def test_a_few_nodes_of_a_leaf_need_more_time_and_recovered_nodes_do_not_count() -> None:
    fleet = Voters()
    fleet.show(fleet.leaf(1, 3, 3))
    fleet.after(60.0)
    fleet.over(fleet.leaf(1, 3, 3))
    fleet.after(3_000.0)
    assert fleet.degraded == []
    fleet.show(fleet.leaf(2, 3, 3))
    fleet.after(590.0)
    assert fleet.degraded == []
    fleet.after(20.0)
    assert fleet.degraded == ["fabric/p2/l3"]


def test_nodes_of_different_leaves_are_no_domain() -> None:
    fleet = Voters()
    fleet.show([f"{pod}-{leaf}-1" for pod in (0, 1) for leaf in (0, 4)])
    fleet.after(3_600.0)
    assert (fleet.degraded, fleet.suppressed) == ([], {})


def test_a_spine_is_degraded_instead_of_its_leaves() -> None:
    fleet = Voters()
    random.seed(1)
    nodes = [uid for leaf in range(LEAVES) for uid in fleet.leaf(2, leaf)]
    fleet.show(random.sample(nodes, 60), "port-link-downed", every=5.0)
    fleet.after(15.0)
    assert fleet.degraded == ["fabric/p2"]
    assert fleet.diagnosis.degraded_domains["fabric/p2"].siblings == 3


def test_an_incident_that_widens_stays_the_same() -> None:
    fleet = Voters()
    fleet.show(fleet.leaf(2, 0), "port-link-downed")
    fleet.after(20.0)
    assert fleet.degraded == ["fabric/p2/l0"]
    began = fleet.diagnosis.degraded_domains["fabric/p2/l0"].since
    for leaf in range(1, LEAVES):
        fleet.show(fleet.leaf(2, leaf, 6), "port-link-downed")
    fleet.after(20.0)
    [degraded] = fleet.diagnosis.degraded_domains.values()
    assert (degraded.domain, degraded.name, degraded.since) == ("fabric/p2", "fabric/p2/l0", began)


@pytest.mark.parametrize(("racks", "degraded"), [(2, ["rack/row0"]), (8, ["rack/row0/r0", "rack/row0/r1"])])
def test_a_row_is_degraded_after_most_of_its_racks_are(racks: int, degraded: list[str]) -> None:
    fleet = Voters()
    first, second, *others = (fleet.nodes[start : start + 8] for start in range(0, 64, 8))
    for uid in [uid for rack in others[racks - 2 :] for uid in rack]:
        fleet.move(uid)
    for rack in (first, second[:5]):
        fleet.show(rack, "gpu-thermal-slowdown")
        fleet.after(60.0)
    assert fleet.degraded == degraded


def test_a_row_is_degraded_if_only_wrong_labels_name_other_racks_in_it() -> None:
    fleet = Voters()
    first, second, *others = (fleet.nodes[start : start + 8] for start in range(0, 64, 8))
    misplaced, outside = others[0][:2], [*others[0][2:], *(uid for rack in others[1:] for uid in rack)]
    for number, uid in enumerate(misplaced):
        fleet.diagnosis.voting.set_domains(uid, (f"rack/row0/wrong{number}",))
    for number, uid in enumerate(outside):
        fleet.diagnosis.voting.set_domains(uid, (f"rack/row9/r{number // 8}",))
    for rack in (first, second[:5]):
        fleet.show(rack, "gpu-thermal-slowdown")
        fleet.after(60.0)
    assert fleet.degraded == ["rack/row0"]


def test_a_rack_without_power_is_distinguished_from_a_leaf() -> None:
    fleet = Voters()
    fleet.show(fleet.leaf(1, 3, 8), STALE_CHECK)
    fleet.after(20.0)
    [domain] = fleet.degraded
    assert domain.startswith("power/feed1/r")


def test_a_power_feed_is_degraded_instead_of_its_racks() -> None:
    fleet = Voters()
    half = range(LEAVES // 2)
    fleet.show(
        [uid for leaf in half for uid in (*fleet.leaf(0, 4 + leaf), *fleet.leaf(1, leaf))], STALE_CHECK
    )
    fleet.after(20.0)
    assert fleet.degraded == ["power/feed1"]


def test_a_pod_with_more_votes_than_its_degraded_leaf_explains_replaces_it() -> None:
    fleet = Voters()
    for leaf in range(LEAVES):
        for uid in fleet.leaf(1, leaf)[6 if leaf < 3 else 0 :]:
            fleet.diagnosis.voting.set_domains(uid, ())
    fleet.show(fleet.leaf(1, 0, 4), "port-link-downed")
    fleet.after(20.0)
    assert fleet.degraded == ["fabric/p1/l0"]
    fleet.show([*fleet.leaf(1, 1, 2), *fleet.leaf(1, 2, 1)], "port-link-downed")
    fleet.after(20.0)
    assert fleet.degraded == ["fabric/p1"]


def test_nodes_without_a_location_do_not_speak_against_a_dead_leaf() -> None:
    fleet = Voters()
    unlabelled = [uid for leaf in (0, 1) for uid in fleet.leaf(3, leaf, 5)]
    for uid in unlabelled:
        fleet.move(uid, "rack/row0/r0")
    fleet.show([*fleet.leaf(1, 3), *unlabelled])
    fleet.after(20.0)
    assert (fleet.degraded, fleet.suppressed) == (["fabric/p1/l3"], {})


def test_two_leaves_at_once_are_two_domains() -> None:
    fleet = Voters()
    fleet.show([*fleet.leaf(0, 3), *fleet.leaf(3, 5)])
    fleet.after(20.0)
    assert fleet.degraded == ["fabric/p0/l3", "fabric/p3/l5"]
    assert fleet.suppressed == {}


def test_a_domain_recovers_when_its_nodes_show_no_fault() -> None:
    fleet = Voters()
    fleet.show(fleet.leaf(1, 3))
    fleet.after(20.0)
    fleet.after(3_600.0)
    assert fleet.degraded == ["fabric/p1/l3"], "its ports are down still"
    fleet.over(fleet.leaf(1, 3))
    fleet.after(1_700.0)
    assert fleet.degraded == ["fabric/p1/l3"], "the soak period begins with the recovery"
    fleet.after(200.0)
    assert fleet.degraded == []
    fleet.show(fleet.leaf(1, 3))
    fleet.after(20.0)
    fleet.over(fleet.leaf(1, 3))
    assert fleet.diagnosis.degraded_domains["fabric/p1/l3"].times == 2
    fleet.after(3_500.0)
    assert fleet.degraded == ["fabric/p1/l3"], "twice as long"
    fleet.after(200.0)
    assert fleet.degraded == []


def test_a_diagnosis_that_lasted_for_days_still_counts_those_before_it() -> None:
    fleet = Voters()
    for lasts in (60.0, 3 * 86_400.0, 60.0):
        fleet.show(fleet.leaf(1, 3))
        fleet.after(lasts)
        times = fleet.diagnosis.degraded_domains["fabric/p1/l3"].times
        fleet.over(fleet.leaf(1, 3))
        fleet.after(2.0 * 3_600.0)
        assert fleet.degraded == []
    assert times == 3


@pytest.mark.parametrize(
    ("nodes", "failing", "is_degraded"),
    [(1, 1, False), (2, 2, True), (6, 2, True), (7, 2, False), (7, 3, True)],
)
def test_two_nodes_are_enough_in_a_small_domain(nodes: int, failing: int, is_degraded: bool) -> None:
    """Nodes that may not vote, such as cordoned ones, do not count."""
    fleet = Voters()
    for uid in fleet.leaf(1, 3)[nodes:]:
        fleet.diagnosis.voting.set_domains(uid, ())
    fleet.show(fleet.leaf(1, 3, failing))
    fleet.after(1_000.0)
    assert fleet.degraded == (["fabric/p1/l3"] if is_degraded else [])


@pytest.mark.parametrize("seconds", [0.0, 60.0])
def test_small_leaves_of_many_pods_that_fail_together_or_in_turn_are_degraded(seconds: float) -> None:
    fleet = Voters()
    for pod in range(3):
        for uid in fleet.leaf(pod, 3)[6:]:
            fleet.diagnosis.voting.set_domains(uid, ())
    for pod in range(3):
        fleet.show(fleet.leaf(pod, 3, 2))
        fleet.after(seconds)
    fleet.after(1_000.0)
    assert (fleet.degraded, fleet.suppressed) == (["fabric/p0/l3", "fabric/p1/l3", "fabric/p2/l3"], {})


def test_nodes_with_frequent_onsets_do_not_vote() -> None:
    fleet = Voters()
    for _ in range(4):
        fleet.show(fleet.leaf(1, 3, 2), "port-link-downed")
        fleet.after(8_000.0)
    fleet.show(fleet.leaf(1, 3, 2), "port-link-downed")
    fleet.show(["1-3-9", "1-3-8"], "port-link-downed")
    fleet.after(1_000.0)
    assert fleet.degraded == []


def test_an_operator_clears_a_domain() -> None:
    fleet = Voters()
    fleet.show(fleet.leaf(1, 3))
    fleet.show(random.Random(1).sample(fleet.nodes, 20), "gpu-lost")
    fleet.after(20.0)
    fleet.diagnosis.clear("fabric/p1/l3", fleet.now)
    fleet.diagnosis.clear("gpu-lost", fleet.now)
    assert (fleet.degraded, fleet.suppressed) == ([], {})
    fleet.after(60.0)
    assert (fleet.degraded, fleet.suppressed) == ([], {})


def test_a_restored_domain_recovers() -> None:
    fleet = Voters()
    classes = ("link-down", "unknown")
    fleet.diagnosis.open(
        DegradedDomain("fabric/p1/l3", "fabric/p1/l3", classes, fleet.now, fleet.now, (), 16, restored=True)
    )
    assert fleet.diagnosis.degraded_domains["fabric/p1/l3"].fault_classes == ("link-down",)
    fleet.show(fleet.leaf(1, 3))
    fleet.after(3_600.0)
    assert fleet.degraded == ["fabric/p1/l3"]
    fleet.over(fleet.leaf(1, 3))
    fleet.after(1_900.0)
    assert fleet.degraded == []


def test_no_evaluation_is_due_without_votes() -> None:
    fleet = Voters()
    assert fleet.diagnosis.next_evaluation() is None
    fleet.show(["1-3-9"], "gpu-lost")
    assert fleet.diagnosis.next_evaluation() is None
    assert set(VIEWS["port-down"]) == {"fabric"}


def test_the_policy_sets_the_constants() -> None:
    fleet = Voters(rule=replace(diagnosis_policy(), grace_period=100.0))
    fleet.show(fleet.leaf(1, 3, NODES))
    fleet.after(90.0)
    assert fleet.degraded == []
    fleet.after(20.0)
    assert fleet.degraded == ["fabric/p1/l3"]


def test_a_tally_has_the_votes_that_a_domain_needs() -> None:
    fleet = Voters()
    fleet.show(fleet.leaf(1, 3, 2), "port-link-downed")
    [tally] = [
        tally
        for tally in fleet.diagnosis.voting.tallies("fabric/p1/l3", fleet.now)
        if tally.fault_class == "link"
    ]
    assert (
        len(tally.voters),
        tally.size,
        tally.by_share,
        tally.by_chance,
        tally.required,
    ) == (2, 16, 3, 3, 3)
    assert tally.window == 600.0
    assert {tally.fault_class for tally in fleet.diagnosis.voting.tallies("power/feed0", fleet.now)} == {
        "silent",
        "power",
    }
    assert fleet.diagnosis.voting.affected_domains(fleet.now) == {"fabric/p1": 2, "fabric/p1/l3": 2}
    assert fleet.diagnosis.voting.latest_votes("fabric/p1/l3", ["link"]).keys() == set(fleet.leaf(1, 3, 2))
    fleet.after(60.0)
    assert fleet.degraded == []
    fleet.show(fleet.leaf(1, 3, 4)[2:], "port-link-downed")
    fleet.after(20.0)
    assert fleet.degraded == ["fabric/p1/l3"]


def test_a_tie_of_domains_goes_to_the_topology_that_the_class_lists_first() -> None:
    fleet = Voters()
    for number, uid in enumerate(fleet.leaf(1, 3)):
        paths = (f"fabric/p1/l{3 + number // 8 * 20}", f"power/feed1/r{number // 8}x")
        fleet.move(uid, *paths)
    fleet.show(fleet.leaf(1, 3, 8), STALE_CHECK)
    fleet.after(30.0)
    assert fleet.degraded == ["power/feed1/r0x"]


@pytest.mark.parametrize("down", [4, 5, 7, 16])
@pytest.mark.parametrize("weak", [1, 2])
def test_weak_candidates_elsewhere_do_not_hide_a_leaf_with_a_quarter_of_its_links_down(
    weak: int, down: int
) -> None:
    fleet = Voters()
    for pod in range(weak):
        fleet.show(fleet.leaf(2 + pod, 5, 3))
    fleet.after(60.0)
    assert fleet.degraded == []
    fleet.show(fleet.leaf(1, 3, down))
    fleet.after(30.0)
    assert (fleet.degraded, fleet.suppressed) == (["fabric/p1/l3"], {})


def test_onsets_of_faults_that_are_over_vote_by_another_rule() -> None:
    fleet = Voters()
    leaf = fleet.leaf(1, 3, 10)
    fleet.show(leaf, "port-link-downed")
    fleet.over(leaf, "port-link-downed")
    fleet.diagnosis.set_rule(diagnosis_policy(min_nodes=4))
    fleet.look()
    fleet.after(30.0)
    assert fleet.degraded == ["fabric/p1/l3"]
    fleet.diagnosis.set_rule(diagnosis_policy(min_nodes=5))
    assert fleet.degraded == ["fabric/p1/l3"]
