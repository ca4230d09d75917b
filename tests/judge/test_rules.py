from __future__ import annotations

from nodeguard.judge.rules import rules
from nodeguard.model.catalogue import Catalogue
from nodeguard.model.check import Compare, Either, Increase, Sustained
from nodeguard.model.slot import KINDS
from tests.judge.scene import check

CHECKS = (
    check(Either((Increase("n", 1, 60), Sustained(Increase("m", 1, 20), 5))), "a", targets=("gpu", "node")),
    check(Increase("n", 5, 600), "b", targets=("gpu",), family="other"),
    check(Compare("hot", "is", value=True), "c", targets=("port",)),
)


def test_checks_stand_with_the_kinds_that_they_judge() -> None:
    made = rules(Catalogue(checks=CHECKS), {})
    assert set(made.of) == set(KINDS)
    assert {kind: [rule.check.id for rule in rows] for kind, rows in made.of.items() if rows} == {
        "gpu": ["a", "b"],
        "node": ["a"],
        "port": ["c"],
    }


def test_each_counter_is_remembered_for_the_longest_window_of_its_kind_of_slot() -> None:
    spans = rules(Catalogue(checks=CHECKS), {}).spans
    assert (spans["gpu"], spans["node"], spans["port"]) == ({"n": 600, "m": 20}, {"n": 60, "m": 20}, {})


def test_some_families_alone() -> None:
    made = rules(Catalogue(checks=CHECKS), {}, frozenset({"other"}))
    assert [rule.check.id for rows in made.of.values() for rule in rows] == ["b"]
    assert made.spans["gpu"] == {"n": 600}
