"""Where nodes sit as their labels, the policy and the cluster's own objects change."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from nodeguard.fleet.known import Known
from nodeguard.fleet.roster import Roster
from nodeguard.model.node import Node
from nodeguard.model.policy import Place, Policy, View

KEYS = ("fabric.topograph.run/tier-0", "fabric.topograph.run/tier-1", "topology.k8s.aws/network-node-layer-1")
LABELS = st.dictionaries(st.sampled_from((*KEYS, "a")), st.sampled_from("xy"), max_size=4)
POLICIES = (
    Policy(),
    Policy(views=(View("rack", ("a",)),)),
    Policy(places=(Place("n[ab]", {"fabric": "p1/l1"}),)),
)


def domains(roster: Roster) -> dict[str, tuple[str, ...]]:
    return {uid: seat.domains for uid, seat in roster.seats.items()}


def test_all_are_seated_anew_when_another_way_counts() -> None:
    roster = Roster(Policy(), Known(()))
    for uid in "ab":
        roster.node(Node(uid, uid, labels={KEYS[0]: "l1"}, gpus=8))
    assert domains(roster) == dict.fromkeys("ab", ("domain/fabric/l1",))
    roster.topologies((View("fabric", (KEYS[1], KEYS[0])),))
    for uid in "ab":
        roster.node(Node(uid, uid, labels={KEYS[0]: "l1", KEYS[1]: "p1"}, gpus=8))
    assert domains(roster) == dict.fromkeys("ab", ("domain/fabric/p1", "domain/fabric/p1/l1"))
    roster.adopt(POLICIES[2])
    assert domains(roster) == dict.fromkeys("ab", ())
    assert roster.views.lacking()["fabric", "places"].names == ("a", "b")


def test_a_node_that_is_not_of_the_fleet_counts_for_no_way() -> None:
    roster = Roster(Policy(), Known(()))
    roster.node(Node("web-1", "w", labels={KEYS[2]: "n1"}))
    roster.node(Node("gpu-1", "g", labels={KEYS[0]: "l1"}, gpus=8))
    assert roster.views.ways() == {"fabric": KEYS[:1]}
    roster.hear("w")
    assert roster.views.lacking()["fabric", KEYS[0]].names == ("web-1",)
    roster.gone("w")
    assert roster.views.lacking() == {}


@given(st.permutations([*[{KEYS[0]: "l"}] * 5, *[{KEYS[0]: "l", KEYS[1]: "p"}] * 4, *[{KEYS[2]: "n"}] * 9]))
def test_what_nodes_share_does_not_depend_on_the_order_in_which_they_came(
    nodes: list[dict[str, str]],
) -> None:
    roster = Roster(Policy(), Known(()))
    for number, labels in enumerate(nodes):
        roster.node(Node(f"n{number}", f"u{number}", labels=labels, gpus=8))
    roster.complete()
    assert roster.views.ways() == {"fabric": KEYS[:1]}


STEPS = st.one_of(
    st.tuples(st.sampled_from("abcde"), st.none() | LABELS),
    st.sampled_from(POLICIES),
    st.lists(st.sampled_from(KEYS), min_size=1, unique=True),
)


@given(st.lists(STEPS, max_size=30))
def test_whatever_moves_ledgers_count_each_node_where_it_sits(
    steps: list[tuple[str, dict[str, str] | None] | Policy | list[str]],
) -> None:
    roster = Roster(Policy(), Known(()))
    for step in steps:
        if isinstance(step, Policy):
            roster.adopt(step)
        elif isinstance(step, list):
            roster.topologies((View("fabric", tuple(step)),))
        elif step[1] is None:
            roster.gone(step[0])
        else:
            roster.node(Node(f"n{step[0]}", step[0], labels=step[1], gpus=8))
        sizes = Counter(key for seat in roster.seats.values() for key in seat.ledgers)
        assert {key: many for key, many in roster.ledgers._sizes.items() if many} == sizes
        for uid, seat in roster.seats.items():
            assert seat.domains == tuple(f"domain/{path}" for path in roster.views.paths(uid))
